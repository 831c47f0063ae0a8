"""What is asked of the model, in which words, and when: pure functions of scene, wearer and time.

    commands.parse       what the wearer typed or said
    prompts              our words round it
    goals                a goal's next step: when it is due
    changes              a change of scene: whether it is worth telling

Knows no model, no queue and no clock: times are the running loop's, in ns, handed in.
"""
