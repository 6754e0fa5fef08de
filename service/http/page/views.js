// What the API told, put into its sections: figures, sentences, tables. Nothing here asks anything.

import { $, badge, cell, element, fill, number, offer, row, tile } from "./parts.js";
import * as words from "./words.js";

const FIRST_PHASES = ["service", "setup", "completion"];
const MOST_CHANGES = 6;
const SECTIONS = ["ask", "plan", "now", "truth"];

/** How far the service has come, and which phases can be asked about. */
export function overview(told) {
  const ago = (ns) => words.age((told.now_ns - ns) / 1e9);
  const behind = told.last_commit - told.learned_to;
  const rows = () => words.plural(told.model_observations, "row");
  const fitted = told.model_fitted_ns ? `fitted ${ago(told.model_fitted_ns)} on ${rows()}` : "fitted once phases end";
  fill($("state"), [
    tile("Last commit", words.count(told.last_commit), told.last_commit_ns ? ago(told.last_commit_ns) : "nothing committed"),
    tile(
      "Learned up to", words.count(told.learned_to),
      behind > 0 ? `${words.plural(behind, "commit")} ago; answers and scores are commits too` : "the newest commit",
    ),
    tile("Phases that ended", words.count(told.ended), `${words.plural(told.quarantined, "span")} quarantined`),
    tile("Answers not yet kept", words.count(told.ledger_pending), "normally 0 within a second"),
    tile("Model", told.model_id ? told.model_id.slice(0, 8) : "none yet", fitted),
  ]);
  $("health").textContent = told.ready ? "answering" : "waiting for the first outcomes";
  $("health").className = `badge ${told.ready ? "good" : "warn"}`;
  $("empty").hidden = told.ready;
  for (const id of SECTIONS) $(id).hidden = !told.ready;
  const first = FIRST_PHASES.filter((phase) => told.phases.includes(phase));
  const ordered = [...first, ...told.phases.filter((phase) => !first.includes(phase))];
  offer($("phase"), ordered.map((phase) => [phase, words.spaced(phase)]));
}

/** One answer about a whole phase; `shown` are the levels to name. */
export function answer(told, shown) {
  const at = (p) => words.time(told.quantiles_s[told.levels.indexOf(p)]);
  fill($("verdict"), [
    badge(told.status), ` Half end within ${at(0.5)}, nine in ten within ${at(0.9)}. `,
    `The answer is ${words.standing(told.status, told.reasons)}`,
  ]);
  const needed = new Map(told.beyond.map((one) => [one.level, one.needs_n]));
  const note = (p) => (needed.has(p) ? `a guess: ${words.plural(needed.get(p), "more outcome")} needed` : "claimed");
  fill($("quantiles"), [
    ...shown.map((p) => tile(words.level(p), at(p), note(p))),
    tile("Mean", words.time(told.mean_s), `of times up to ${words.time(told.horizon_s)}`),
    tile("Completes", told.p_complete === null ? "–" : words.percent(told.p_complete), "rather than fails"),
  ]);
  const claimed = words.level(Math.floor(told.claimed_to * 1000) / 1000);
  $("evidence").textContent =
    `Evidence: ${words.plural(told.support.n, "outcome")} of the same ${told.support.level}, levels claimed up to ${claimed}; ` +
    `the longest ${words.spaced(told.phase)} known took ${words.time(told.support.largest_s)}. ` +
    `As of commit ${words.count(told.as_of_commit)}.`;
}

/** What is left after `waitedS` seconds. */
export function remaining(told, waitedS) {
  const at = (p) => words.time(told.quantiles_s[told.levels.indexOf(p)]);
  $("elapsed-value").textContent = words.time(waitedS);
  $("elapsed").setAttribute("aria-valuetext", words.time(waitedS));
  const left = ` After ${words.time(waitedS)}, half end within another ${at(0.5)}, nine in ten within ${at(0.9)}.`;
  fill($("remaining"), [badge(told.status), left]);
}

/** The phases that run; `shown` of them are listed. */
export function running(told, shown) {
  const more = told.phases.length > shown.length ? `; the newest ${shown.length} are drawn.` : ".";
  $("now-figure").hidden = shown.length === 0;
  $("now-note").textContent = told.attempts === 0
    ? "Nothing runs now. An attempt appears here as soon as its first boundary is sent."
    : `${words.plural(told.attempts, "attempt")} with ${words.plural(told.phases.length, "open phase")}${more}`;
  const left = (one, p) => number(one.remaining_s ? words.time(one.remaining_s[told.levels.indexOf(p)]) : "–");
  const place = ({ context }) => [context.host ?? "unknown", context.state].filter(Boolean).join(", ");
  fill($("running-rows"), shown.map((one) => row(
    one.attempt_id, cell(words.spaced(one.phase)), cell(place(one)), number(words.time(one.elapsed_s)),
    left(one, 0.5), left(one, 0.9), left(one, 0.95), cell(badge(one.status)),
  )));
}

/** Coverage; `shown` of the `count` strata of one kind of question are listed. */
export function coverage(told, shown, count) {
  const more = count > shown.length ? ` The worst ${shown.length} of ${count} strata are shown.` : "";
  $("truth-body").hidden = told.answers === 0;
  $("truth-note").textContent = told.answers === 0
    ? "No answer about a named attempt has an outcome yet. Send attempt_ids with /v1/predict, then the attempts' events."
    : `${words.plural(told.answers, "answer")} with what became of them. Farthest off: ${told.worst}.${more}`;
  const past = (stratum, p) => {
    const one = stratum.exceeded.find((level) => level.level === p);
    return number(one.n ? `${words.percent(one.share)} of ${one.n}` : "–", one.outside ? "outside" : "");
  };
  fill($("coverage-rows"), shown.map((one) => row(
    element("a", { href: reportOf(one) }, words.spaced(one.phase)), cell(one.state || "unknown"), cell(one.host || "unknown"),
    number(words.count(one.n)), number(words.count(one.censored)), number(words.count(one.failed)),
    past(one, 0.5), past(one, 0.9), past(one, 0.95), number(one.crps_log === null ? "–" : words.digits(one.crps_log, 2)),
  )));
}

/** Drift that was found and what followed, the newest first. */
export function drift(told) {
  const shown = told.changes.slice(-MOST_CHANGES).reverse();
  $("drift-figure").hidden = shown.length === 0;
  $("drift-note").textContent = shown.length === 0
    ? "No drift is on record."
    : `${words.plural(told.changes.length, "change")} on record${told.changes.length > shown.length ? `; the newest ${shown.length} are listed` : ""}.`;
  const when = (ns) => new Date(ns / 1e6).toISOString().slice(0, 19).replace("T", " ");
  fill($("drift-rows"), shown.map((one) => row(
    when(one.made_ns), cell(one.subject), cell(words.spaced(one.action)), cell(one.reason), cell(one.undone_ns ? when(one.undone_ns) : "stands"),
  )));
}

/** Where the report tells about the strata of a phase. */
const reportOf = ({ asked, phase }) => `/v1/reports/page#${new URLSearchParams({ asked, phase, level: $("level").value })}`;

/** A host of the list, with its profile (null if it was never measured). */
export function host(told, profile) {
  const seen = `${words.plural(told.attempts, "attempt")} known, ${words.count(told.running)} running.`;
  $("profile").hidden = profile === null;
  if (profile === null) {
    $("host-note").textContent = `${seen} It was never measured. Measuring needs a grant: \`phasecast grant add\`.`;
    return;
  }
  const partial = profile.partial ? "; this one was stopped before all probes were done" : "";
  const versions = words.plural(profile.versions, "profile");
  $("host-note").textContent = `${seen} Measured ${words.age(profile.age_s)}, ${versions} so far${partial}.`;
  fill($("rates"), profile.rates.map((one) => {
    const { of, amount } = words.rate(one.name, one.median);
    const spread = `± ${words.percent(one.spread)}`;
    return row(of, number(amount), number(spread), number(words.count(one.samples)), cell(one.complaints.join("; ") || "nothing"));
  }));
  const changed = profile.changes.slice(0, MOST_CHANGES).join("; ");
  $("changes").textContent = `Condition ${profile.version}. ${changed ? `Since the profile before: ${changed}.` : "Nothing changed."}`;
  $("grant").textContent = permission(profile.grant);
  fill($("condition"), Object.entries(profile.condition).flatMap(([name, value]) => [
    element("dt", {}, words.spaced(name)), element("dd", {}, value === null ? "unknown" : String(value)),
  ]));
}

function permission(grant) {
  if (grant === null) return "The grant it was measured under is not in this store.";
  const ceilings = `at most ${words.plural(grant.max_threads, "thread")} and ${words.time(grant.max_run_s)}`;
  const force = grant.in_force ? "It is in force." : "It has ended; nothing may be measured now.";
  return `Measured under a grant of ${grant.granted_by} for ${grant.probes.join(", ")}: ${ceilings}. ${force}`;
}
