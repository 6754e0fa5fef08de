"""The one loop behind the answers: ledger to store, events to observations, outcomes to scores, changes to the model."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Sequence
from dataclasses import replace

from calibrate.conformal.wrap import Calibrated
from calibrate.evidence.reliability import Reliability
from predictors.model import changes_of
from service.contest import Contest
from service.derive import Derived, derive, derived_to
from service.engine import Serving
from service.lineup import Lineup
from service.noted import Noted
from service.plan_scoring import WaitingPlans, corrected_batch, corrections, with_corrections, with_outcomes
from service.refit import Fit, Refitter, caught_up, folded, nicer, restored, succeeded
from service.scoring import Waiting
from service.settings import Settings
from service.warming import Recent
from telemetry import asof
from telemetry.errors import StoreError
from telemetry.ledger import PlanAnswer, Prediction
from telemetry.store.batch import Batch, merged
from telemetry.store.file import Store
from telemetry.tables import Observation

log = logging.getLogger(__name__)
IDLE_S = 0.5
ROUND_ROWS = 10_000
"""Rows (count) of commits that one round looks at, or a single commit: what came in at once is observed in slices."""
COURTESY, AT_ONCE_S = 8.0, 0.5
"""A round waits for events under way to be taken in, for as many times its own length at most, or for half a second where it left
none behind: so an outcome changes answers within a second. While more come in than can be learned from, learning falls behind
and gets a ninth of the time; it is done when they rest."""
ROUND_NICENESS, REFIT_NICENESS = 5, 10
"""Added to that of rounds, and of fits, where other processes answer: with all processors busy, answers go first."""
GATHER_S = 0.25
"""A round waits so long for answers of other processes at most: one that hangs must not stop learning."""
TROUBLED_S = 2.0
"""Pause after a round that failed: what failed may be a full disk."""


class Upkeep:
    """Keeps a lineup true to the store. `tick` does one round; `start` runs rounds on a thread until `stop`."""

    def __init__(self, store: Store, lineup: Lineup, settings: Settings) -> None:
        self._store, self._lineup, self._tick_s = store, lineup, settings.tick_s
        self._refitter = Refitter(
            store, settings.refit_outcomes, settings.refit_share, lineup.fits, REFIT_NICENESS if settings.workers else 0
        )
        self._contest = Contest(store, lineup, settings.challengers)
        self._noted = Noted(store)
        self._reader = store.reader()
        self._wake, self._stopping = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._run, name="phasecast-upkeep", daemon=True)
        self._refitter.learned(asof.count_ended(self._reader, store.last_commit))
        self._whole, self._behind = False, False
        self._answers_here = settings.workers == 0
        self._rounds, self._begun, self._ended = threading.Condition(), 0, 0
        self._recent, self._done_to = Recent(), 0
        try:
            self.tick()
        except StoreError as error:  # what is known answers on; what is to be written waits for room
            log.exception("the first round of upkeep failed; the next one takes its work up again")
            lineup.trouble = f"{type(error).__name__}: {error}"
        store.subscribe(lambda _commit, _batches: self._wake.set())

    def tick(self, *, last: bool = False) -> None:
        """One round: what is committed now is observed, scored and learned; a finished fit takes over.

        The last one before the end keeps the answers that were given, and takes nothing on.
        """
        newest = self._store.last_commit
        self._begun += 1
        # The queue is emptied after `newest` is read, so an answer always comes before the events it was about.
        self._lineup.gather(GATHER_S)
        ledger = self._lineup.ledger
        self._lineup.writing = len(ledger)
        taken = [ledger.popleft() for _ in range(self._lineup.writing)]
        if self._answers_here:
            self._recent.note(taken)
        self._contest.heed(self._reader, newest)
        try:
            left = [] if self._whole else self._recover(newest)
            upto = self._derived_to if last else asof.slice_end(self._reader, self._derived_to, newest, ROUND_ROWS)
            self._behind = upto < newest
            ids = asof.touched(self._reader, self._derived_to, upto)
            if not self._whole and not last:
                ids = sorted({*ids, *asof.open_attempts(self._reader, newest)})
            self._commit(taken, left, derive(self._reader, ids, upto, newest), upto)
            self._whole = True
        except BaseException:
            ledger.extendleft(reversed(taken))
            self._whole = False
            raise
        finally:
            self._lineup.writing = 0
        with self._rounds:
            self._ended = self._begun
            self._rounds.notify_all()
        if last:
            return
        if not self._behind:
            self._lineup.looked_to = newest  # whatever it held is learned, also where it held nothing to learn from
        self._swap()
        calibrated = self._lineup.calibrated
        self._noted.keep(self._reader, calibrated.model if calibrated is not None else None)

    def _recover(self, upto: int) -> list[Observation]:
        """Take up where the last process, or a round that failed, stopped: its model, and the answers that wait.

        Returns observations that have ended of attempts that are waited for: some of them were told to nobody.
        """
        self._contest.publish(restored(self._store, self._reader, upto))
        self._lineup.learned_to = upto
        self._derived_to = derived_to(self._reader)
        self._plans = WaitingPlans(asof.plan_answers(self._reader, upto, scored=False))
        outcomes = asof.plan_outcomes(self._reader, upto)
        known = [(answer, outcomes[answer.answer_id]) for answer in asof.plan_answers(self._reader, upto, scored=True)]
        self._lineup.reliability = {"chance": with_outcomes(Reliability(), known)}
        unscored = asof.rows_of(Prediction, asof.predictions(self._reader, upto, unscored=True))
        self._waiting = Waiting(unscored)
        ids = sorted({row.attempt_id for row in unscored if row.attempt_id is not None} | set(self._plans.attempt_ids))
        left = Derived()
        for row in asof.standing(self._reader, ids, upto).values():
            left.note(None, row)
        return left.ended

    def _commit(self, taken: list[Prediction | PlanAnswer], left: Sequence[Observation], derived: Derived, upto: int) -> None:
        """Publish what runs at once; then answers given, observations that changed and outcomes become known together.

        `taken` is emptied once it is on disk; `left` had ended before.
        """
        if derived.running:
            now = {**self._lineup.running, **derived.running}
            self._lineup.running = {key: attempt for key, attempt in now.items() if attempt is not None}
        self._lineup.derived_to = upto
        self._waiting.add(row for row in taken if isinstance(row, Prediction))
        self._plans.add(row for row in taken if isinstance(row, PlanAnswer))
        ended = [*left, *derived.ended]
        plans = self._plans.score(ended)
        outcomes = Batch(tuple(outcome for _, outcome in plans))
        given = Batch((*taken, *self._contest.answered(taken)))
        together = merged(given, derived.batch, self._waiting.score(self._reader, ended, ()), outcomes)
        self._done_to = upto
        if together.rows or together.closes:
            commit = self._done_to = self._store.write(together).commit
            taken.clear()
            if derived.batch is not None:
                self._learn(commit)
        self._derived_to = upto
        self._refitter.learned(len(derived.ended))
        self._contest.note(derived.ended)
        self._lineup.reliability = {"chance": with_outcomes(self._lineup.reliability_of("chance"), plans)}
        if derived.corrected:
            self._correct(derived.corrected)

    def _correct(self, corrected: Sequence[Observation]) -> None:
        """Replace outcomes of answers whose observations late events have changed; both stand in the store by now."""
        other = corrections(self._reader, corrected)
        plans = self._plans.score(corrected)
        outcomes = Batch(tuple(outcome for _, outcome in plans))
        together = merged(self._waiting.score(self._reader, (), corrected), corrected_batch(other), outcomes)
        if together.rows or together.closes:
            self._store.write(together)
        before = with_corrections(self._lineup.reliability_of("chance"), other)
        self._lineup.reliability = {"chance": with_outcomes(before, plans)}

    def _learn(self, commit: int) -> None:
        """Fold observations known by `commit` into the serving model."""
        before = self._lineup.calibrated
        if before is not None:
            self._contest.learn(self._reader, commit)
            changes = changes_of(asof.changes(self._reader, before.model.commit, commit))
            if isinstance(before.model, Calibrated):
                self._refitter.met(changes, before.model)
            self._contest.publish(Serving(folded(before.model, changes), before.model_id))
        self._lineup.learned_to = commit

    def _swap(self) -> None:
        """Let fitted experts take over: once the model they are part of is saved, it serves. Start a fit when one is due."""
        newest_profile = asof.newest_profile(self._reader, self._derived_to)
        # What came with a profile or before it is learned by now, so that a fit may be as of then.
        self._lineup.learned_to = max(self._lineup.learned_to, newest_profile)
        done, upto, before = self._refitter.finished(), self._lineup.learned_to, self._lineup.calibrated
        if isinstance(done, Fit):
            model = succeeded(done, before, self._reader, upto)
            if model is not None:
                self._refitter.save(model, replace(done.origin, served_from=upto))
        elif done is not None:
            self._contest.publish(Serving(caught_up(done.model, self._reader, upto), done.row.model_id))
        self._refitter.maybe_start(upto, self._lineup.calibrated, newest_profile)
        self._contest.go_on(self._reader, upto)

    def warm(self) -> None:
        """Make answers ready that were asked for lately, unless there is something to observe."""
        serving = self._lineup.serving
        if serving is not None:
            self._recent.warm(serving.model, lambda: self._done_to >= self._store.last_commit and not self._stopping.is_set())

    def first_fit(self) -> None:
        """Take up all that is committed, and wait for the first fit where nothing can answer yet.

        For a process without a thread of rounds.
        """
        self._take_up()
        while self._lineup.serving is None and self._refitter.wait():
            self._swap()
        while not self._contest.ready and self._contest.wait():
            self._swap()

    def fit_now(self) -> None:
        """Take up all that is committed, and let experts fitted on it take over; nothing where nothing has completed."""
        before = self._lineup.calibrated
        self._take_up()
        while self._refitter.wait():
            self._swap()
        now = self._lineup.calibrated
        if before is not None and now is not None and now.model_id == before.model_id:
            self._refitter.start(self._lineup.learned_to, now)
            while self._refitter.wait():
                self._swap()

    def _take_up(self) -> None:
        newest = self._store.last_commit
        while self._derived_to < newest:
            self.tick()

    def start(self) -> None:
        """Run rounds on a thread, beside others that answer."""
        self._refitter.go_apart()
        self._lineup.settle = self.settle
        self._thread.start()

    def settle(self, most_s: float) -> bool:
        """Have all answers given by now on disk, in a round of the thread that begins from here on."""
        until_s = time.monotonic() + most_s
        self._lineup.gather(most_s)
        wanted = self._begun + 1
        self._wake.set()
        with self._rounds:
            return self._rounds.wait_for(lambda: self._ended >= wanted, until_s - time.monotonic())

    def stop(self) -> None:
        """End after a last round, so that no given answer is left behind; events that are take their turn at the next start."""
        self._stopping.set()
        self._wake.set()
        if self._thread.is_alive():
            self._thread.join()
        self.tick(last=True)
        self._refitter.close()
        self._contest.close()
        self._reader.close()

    def _run(self) -> None:
        """Round after round: at once when something was committed, else now and then for the ledger and the fits."""
        if not self._answers_here:
            nicer(ROUND_NICENESS)
        while not self._stopping.is_set():
            self._wake.wait(IDLE_S)
            self._wake.clear()
            started_s = ended_s = time.monotonic()
            try:
                self.tick()
                ended_s = time.monotonic()
                self.warm()
                self._lineup.trouble = self._refitter.trouble
                pause_s = self._tick_s
            except Exception as error:  # a thread that ended in silence would leave answers to grow old unnoticed
                log.exception("a round of upkeep failed; the next one takes its work up again")
                self._lineup.trouble = f"{type(error).__name__}: {error}"
                pause_s = TROUBLED_S
            way_s = COURTESY * (ended_s - started_s)
            self._stopping.wait(pause_s)
            self._lineup.intake.give_way(way_s if self._behind else min(way_s, AT_ONCE_S), self._stopping)
            if self._derived_to < self._store.last_commit:
                self._wake.set()
