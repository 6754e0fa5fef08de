"""docs/accuracy.md, from what was measured and what was measured of peers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from math import hypot
from typing import Any

from benchmarks.clustered import SURE

Measured = Mapping[str, Any]
Peers = Mapping[str, Mapping[str, Any]]
HEAD = """# How accurate answers are on other people's timings

Written by `make accuracy`; every figure comes from the `phasecast backtest` command and the scorer in `../shared/bench` on the
sets in `../shared/datasets`. Each row is answered before its outcome is known, the last 40 % of rows count, and `calibrated` is
what is served. Peers are what one would use instead, as measured by `../shared/bench/peers.py`; the best peer is the one with the
lowest `crps_log` on that set.

* `crps_log`: continuous ranked probability score of log time, nats, lower is better; its standard error is by cluster.
* `crps_rel`, `pin99_rel`: CRPS and p99 pinball loss in seconds, relative to the phase's empirical distribution.
* `cov50` ... `cov99`: share of outcomes at or below the answered quantile.
* group error: mean error of p90 coverage over groups (host, family, phase) of 200 rows or more. `floor`: what a perfect predictor
  would show there by chance alone, were rows independent; `clustered`: the same where rows of a cluster move together as they do.
* Intervals are 95 % intervals by cluster; those of ratios take both errors as independent, which makes them wide, and that of a
  group error is of its linear part: of groups near to p90 it leaves out that their error cannot fall below zero.
"""
COLUMNS = ("crps_log", "ratio", "crps_rel", "pin99_rel", "cov50", "cov90", "cov95", "cov99", "group error", "missing", "crossing")


def page(kept: Mapping[str, Measured], peers: Mapping[str, Peers], models: Sequence[str]) -> str:
    """The whole page, from what was measured so far of each set; without intervals it is to be measured anew."""
    own = models[0]
    known = {name: measured for name, measured in kept.items() if "sure" in measured["models"].get(own, {})}
    lines = [
        HEAD,
        "## Against the best peer",
        "",
        *_summary(known, peers, models),
        "",
        "## In seconds",
        "",
        *_in_seconds(known, peers, models),
    ]
    lines += ["", "## What experts weigh", "", *_weights(known, own), "", "## Nothing foreseen", "", *_unforeseen(known)]
    lines += ["", "## What it took", "", *_took(known, models)]
    for name, measured in known.items():
        lines += ["", *of_set(name, measured, peers[name])]
    return "\n".join(lines) + "\n"


def best(peers: Peers) -> str:
    """Name of the peer with the lowest crps_log."""
    return min((name for name in peers if "crps_log" in peers[name]), key=lambda name: float(peers[name]["crps_log"]))


def of_set(name: str, measured: Measured, peers: Peers) -> list[str]:
    """One set: every model and every peer, the best first."""
    models = {f"**{model}**": found["scores"] for model, found in measured["models"].items()}
    leader = float(peers[best(peers)]["crps_log"])
    ordered = sorted({**models, **peers}.items(), key=lambda one: one[1].get("crps_log", float("inf")))
    some = next(iter(models.values()))
    commits = ", ".join(dict.fromkeys(found["commit"] for found in measured["models"].values()))
    about = f"{some['n']:,} rows scored in {some['clusters']:,} clusters; measured at {commits}."
    floor = next(iter(measured["models"].values()))["floor90"]
    if floor is not None:
        about += f" Floor of the group error: {floor:.4f}."
    return [f"## {name}", "", about, "", *_table(["", *COLUMNS], (_scores(who, scores, leader) for who, scores in ordered))]


def _scores(who: str, scores: Mapping[str, Any], leader: float) -> list[str]:
    if "crps_log" not in scores:
        return [who, *["-"] * len(COLUMNS)]
    cells = [f"{scores['crps_log']:.4f} ({scores['crps_log_se']:.4f})", f"{scores['crps_log'] / leader:.2f}"]
    cells += [f"{scores[name]:.3f}" for name in ("crps_rel", "pin99_rel", "cov50", "cov90", "cov95", "cov99")]
    return [who, *cells, _or_dash(scores["mean_group_err90"], 4), f"{scores['missing']:.3f}", f"{scores['crossing']:.3f}"]


def _summary(known: Mapping[str, Measured], peers: Mapping[str, Peers], models: Sequence[str]) -> list[str]:
    head = ["set", "best peer", "its crps_log (se)", *(f"{model}: ratio" for model in models)]
    head += ["p90 coverage: peer, own", "group error: peer, own, floor, clustered"]
    rows = []
    for name, measured in known.items():
        leader, own = peers[name][best(peers[name])], measured["models"][models[0]]
        scores = own["scores"]
        by_group = (leader["mean_group_err90"], scores["mean_group_err90"], own["floor90"], own["sure"]["floor90"])
        errors = [_or_dash(value, 3) for value in by_group]
        if own["sure"].get("group90") is not None:  # what was measured before there were any tells none
            errors[1] += f" +- {own['sure']['group90']:.3f}"
        row = [name, best(peers[name]), f"{leader['crps_log']:.4f} ({leader['crps_log_se']:.4f})"]
        row.append(_between(scores, leader))
        row += [_or_dash(_of(measured, model, "crps_log", leader["crps_log"]), 2) for model in models[1:]]
        cover = f"{leader['cov90']:.3f}, {scores['cov90']:.3f} +- {own['sure']['cov90']:.3f}"
        rows.append([*row, cover, ", ".join(errors)])
    said = f"Ratios of `crps_log` to the best peer's: below 1 is better than it. Own is `{models[0]}`."
    return [said, "", *_table(head, rows)]


def _between(scores: Mapping[str, Any], leader: Mapping[str, Any]) -> str:
    """The ratio of two scores, with the interval of two independent ones."""
    ratio = float(scores["crps_log"] / leader["crps_log"])
    half = SURE * ratio * hypot(*(one["crps_log_se"] / one["crps_log"] for one in (scores, leader)))
    return f"{ratio:.3f} ({ratio - half:.2f}-{ratio + half:.2f})"


def _in_seconds(known: Mapping[str, Measured], peers: Mapping[str, Peers], models: Sequence[str]) -> list[str]:
    head = ["set", *(f"{what}: {who}" for what in ("crps_rel", "pin99_rel") for who in ("best peer", *models[:2]))]
    rows = []
    for name, measured in known.items():
        row = [name]
        for what in ("crps_rel", "pin99_rel"):
            row += [f"{peers[name][best(peers[name])][what]:.3f}", *(_or_dash(_of(measured, m, what), 3) for m in models[:2])]
        rows.append(row)
    return _table(head, rows)


def _of(measured: Measured, model: str, what: str, unit: float = 1.0) -> float | None:
    """A score of a model in units of another; None where it was not measured."""
    found = measured["models"].get(model)
    return None if found is None else float(found["scores"][what]) / unit


def _weights(known: Mapping[str, Measured], own: str) -> list[str]:
    shares = {name: measured["models"][own]["summary"]["weights"] for name, measured in known.items()}
    experts = list(next(iter(shares.values()), {}))
    rows = [[name, *(f"{share[expert]:.3f}" for expert in experts)] for name, share in shares.items()]
    return ["Mean weight of each expert in the answers about test rows.", "", *_table(["set", *experts], rows)]


def _unforeseen(kept: Mapping[str, Measured]) -> list[str]:
    found = {name: measured["unforeseen"] for name, measured in kept.items() if "unforeseen" in measured}
    said = (
        "Replayed once more with every outcome that was not known at an instant replaced by another one. Answers given by then:"
    )
    rows = [[name, f"{one['answers']:,}", "yes" if one["identical"] else "**no**"] for name, one in found.items()]
    return [said, "", *_table(["set", "answers", "identical to the bit"], rows)]


def _took(known: Mapping[str, Measured], models: Sequence[str]) -> list[str]:
    head = ["set", "rows", "left out", "unanswered", "fits", *(f"{model}, s" for model in models)]
    rows = []
    for name, measured in known.items():
        own = measured["models"][models[0]]["summary"]
        row = [name, *(f"{own[what]:,}" for what in ("rows", "left_out", "unanswered", "fits"))]
        took = [measured["models"][model]["summary"]["wall_s"] if model in measured["models"] else None for model in models]
        rows.append([*row, *(_or_dash(seconds, 0) for seconds in took)])
    return ["Wall time of the whole command, each model asked in a process of its own.", "", *_table(head, rows)]


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """A Markdown table, numbers to the right."""
    rule = ["---", *["---:"] * (len(head) - 1)]
    return ["| " + " | ".join(row) + " |" for row in (head, rule, *rows)]


def _or_dash(value: float | None, digits: int) -> str:
    return "-" if value is None else f"{value:.{digits}f}"
