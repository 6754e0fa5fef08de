// Two questions about the chosen context: whether it is done by a deadline, and when its load must start at the latest. Asked when a
// button is pressed, since every answer is kept in the ledger.

import * as calls from "./calls.js";
import { $, badge, fill } from "./parts.js";
import * as plots from "./plots.js";
import * as words from "./words.js";

const DELTA = 0.05;

/** What was told last, by question; null until it is asked about this context. */
const last = { chance: null, start: null };

/** Forget answers about another context, and propose times of its size where nobody has chosen any. */
export function about(whole) {
  Object.assign(last, { chance: null, start: null });
  const proposed = Number((3 * whole.quantiles_s[whole.levels.indexOf(0.99)]).toPrecision(2));
  for (const id of ["deadline", "need"]) if (!$(id).dataset.chosen) $(id).value = proposed;
  for (const id of ["chance", "start"]) {
    $(id).hidden = true;
    fill($(`${id}-verdict`), []);
  }
}

export async function askChance(context, phases) {
  const deadlineS = $("deadline").valueAsNumber;
  last.chance = await calls.chance(context, stagesOf(context, phases), deadlineS);
  showChance();
}

export async function askStart(context, phases) {
  const [load] = stagesOf(context, phases);
  const needS = $("need").valueAsNumber;
  const [answer, whole] = await Promise.all([calls.latestStart(context, load, needS, DELTA), calls.predict(context, load)]);
  last.start = { answer, whole, load, needS };
  showStart();
}

/** Draw again, in the colours of the theme. */
export function redraw() {
  if (last.chance) showChance();
  if (last.start) showStart();
}

/** What a run of this context consists of, as far as it is known; what is resident needs no setup. */
function stagesOf(context, phases) {
  const stages = ["setup", "service"].filter((kind) => phases.includes(kind) && !(kind === "setup" && context.state === "resident"));
  if (!stages.length) throw new Error("Neither setup nor service has ended yet; record some first.");
  return stages;
}

function showChance() {
  const told = last.chance;
  const at = (p) => words.time(told.completion_s[told.completion_levels.indexOf(p)]);
  fill($("chance-verdict"), [
    badge(told.status), ` Done within ${words.time(told.deadline_s)} with ${words.percent(told.probability)}, `,
    `at least ${words.percent(told.lower)}: ${words.verdict(told.verdict)} at ${words.percent(told.level)}. `,
    `Half are done within ${at(0.5)}, 95 % within ${at(0.95)}; the p95 of its stages add up to ${words.time(told.sum_of_p95_s)}.`,
  ]);
  $("chance").hidden = false;
  const lines = [{ atS: told.deadline_s, name: "deadline" }];
  const points = [[told.deadline_s, told.probability], ...told.completion_s.map((s, i) => [s, told.completion_levels[i]])];
  points.sort(([a, p], [b, q]) => a - b || p - q);
  plots.arrival($("chance"), points, lines, "done by then (%)", "lines+markers");
}

function showStart() {
  const { answer, whole, load, needS } = last.start;
  const ahead = answer.latest_start_s !== null && answer.latest_start_s >= 0;
  const startS = ahead ? answer.latest_start_s : 0;
  const when = ahead ? `Starting the ${load} within ${words.time(startS)}, ` : "Starting now, ";
  const share = ahead ? answer.p_on_time : answer.p_on_time_now;
  fill($("start-verdict"), [
    badge(answer.status), ` ${when}it has ended within ${words.time(needS)} with ${words.percent(share)}; `,
    `${words.verdict(answer.verdict)} at ${words.percent(1 - DELTA)}. `,
    `On average it is late by ${words.time(answer.expected_late_s)}, or waits ${words.time(answer.expected_idle_s)} for its use.`,
  ]);
  $("start").hidden = false;
  const lines = [{ atS: startS, name: ahead ? "latest start" : "now" }, { atS: needS, name: "needed" }];
  const points = [[startS, 0], ...whole.quantiles_s.map((s, i) => [startS + s, whole.levels[i]])];
  plots.arrival($("start"), points, lines, "ready by then (%)", "lines");
}
