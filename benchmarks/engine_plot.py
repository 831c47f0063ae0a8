"""The engines' figures as bars: tokens a second and the reading of a prompt, by bits, for the most threads measured."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from handrail.streams.errors import MissingDependencyError

PANELS = (
    ("decode_tok_s", "tokens a second (more is better)"),
    ("prefill_ms", "prompt of 170 tokens, ms (less is better)"),
)


def draw(records: list[dict[str, Any]], path: Path) -> None:
    """PNG or SVG. Raises MissingDependencyError."""
    try:
        import matplotlib
    except ModuleNotFoundError as e:
        raise MissingDependencyError("matplotlib isn't installed: pip install 'handrail[bench]'") from e
    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    threads = max(r["threads"] for r in records)
    rows = [r for r in records if r["threads"] == threads]
    engines, bits = list(dict.fromkeys(r["engine"] for r in rows)), sorted({r["bits"] for r in rows})
    figure, axes = plt.subplots(1, len(PANELS), figsize=(11, 4), layout="constrained")
    for ax, (name, title) in zip(axes, PANELS, strict=True):
        for i, engine in enumerate(engines):
            found = {r["bits"]: r[name] for r in rows if r["engine"] == engine}
            places = [n + (i - len(engines) / 2 + 0.5) * 0.8 / len(engines) for n in range(len(bits))]
            values = [found.get(b, 0.0) for b in bits]
            bars = ax.bar(places, values, 0.8 / len(engines), label=engine, color="black" if i == 0 else None)
            ax.bar_label(bars, [f"{v:.0f}" if v else "" for v in values], fontsize=7)
        ax.set_xticks(range(len(bits)), [f"{b} bits" for b in bits])
        ax.set_title(f"{title}, {threads} threads", fontsize=10)
    figure.legend(*axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=len(engines), fontsize=8)
    figure.savefig(path)
    plt.close(figure)
