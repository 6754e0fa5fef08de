"""Advice on exploring, paid from an account that is kept in the store."""

from __future__ import annotations

import numpy as np

from calibrate.explore.advice import Alternative, RiskAccount, advise
from predictors.joint.streams import key_of, stream, uniforms
from service.shadow_schemas import AdviceIn, AdviceOut
from telemetry.decisions import Credit


def account_name(asked: AdviceIn) -> str:
    """Name of the account in the store."""
    return f"{asked.account}/risk"


def advised(asked: AdviceIn, standing: Credit | None, now_ns: int) -> tuple[AdviceOut, Credit]:
    """The advice, and the posting that pays for it. The draw hangs on account and decision alone. Raises BadField."""
    account = RiskAccount(asked.share, asked.cap, min(standing.balance, asked.cap) if standing else 0.0)
    options = [Alternative(**one.model_dump()) for one in asked.alternatives]
    draw = float(uniforms(stream(0, f"advice/{asked.account}", np.array([key_of(asked.decision_id)])), 1)[0, 0])
    found = advise(asked.ordinary, options, account, draw, protected=asked.protected, most=asked.most)
    advice = AdviceOut(
        choice=found.choice,
        propensities=dict(found.propensities),
        excluded=dict(found.excluded),
        extra_misses=found.extra_misses,
        balance=found.account.balance,
        reasons=list(found.reasons),
    )
    posting = Credit(
        account=account_name(asked),
        unit="missed promises",
        share=asked.share,
        cap=asked.cap,
        balance=found.account.balance,
        posted_ns=now_ns,
        reason=f"decision {asked.decision_id}",
    )
    return advice, posting
