"""Vision-language backbones behind one interface: ``open_backbone`` for weights, ``tiny.build`` for random ones."""
