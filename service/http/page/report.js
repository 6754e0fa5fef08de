// The report: sections with their words, tables and queries, drawn from the figures in the file.
"use strict";

const told = JSON.parse(document.getElementById("data").textContent);
const $ = (id) => document.getElementById(id);
const MOST_ROWS = 40;
const STRATA = ["state", "host", "device", "family", "mode", "size_class", "batch_class", "concurrency"];
const spaced = (word) => word.replaceAll("_", " ");

function element(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  made.append(...children);
  return made;
}

const tile = (name, value, note) => element("div", {}, element("dt", {}, name), element("dd", {}, value, element("small", {}, note)));

function table(heads, rows, label) {
  const cell = (text, i) => (i ? element("td", { class: typeof text === "number" || /^[-–\d]/.test(text) ? "number" : "" }, String(text)) : element("th", { scope: "row" }, String(text)));
  const head = element("thead", {}, element("tr", {}, ...heads.map((name, i) => element("th", { scope: "col", class: i && rows.length ? cell(rows[0][i], i).className : "" }, name))));
  const body = element("tbody", {}, ...rows.map((row) => element("tr", {}, ...row.map(cell))));
  return element("div", { class: "scroll tall", tabindex: "0", role: "region", "aria-label": label }, element("table", {}, head, body));
}

// What is looked at.

const chosen = () => ({ asked: $("asked").value, p: Number($("level").value), phase: $("phase").value, by: $("by").value });
const within = (row) => row.asked === chosen().asked && (chosen().phase === "" || row.phase === chosen().phase);
const nameOf = (row) => [row.phase ?? "all phases", ...STRATA.filter((s) => row[s] !== null && row[s] !== undefined).map((s) => row[s] || `${spaced(s)} unknown`)].join(", ");
const exceeded = (row) => row.exceeded.find((one) => one.level === chosen().p);
const passed = () => `took longer than ${levelName(chosen().p)} (%)`;
const utc = (ns) => new Date(ns / 1e6).toISOString();

/** Strata of a report as chosen: phases alone, by one value, or by state and host. */
function strata(report) {
  const { by } = chosen();
  if (by === "state and host") return report.strata.filter(within);
  const values = (row) => STRATA.filter((s) => row[s] !== null);
  return report.margins.filter(within).filter((row) => (by === "phase" ? values(row).length === 0 : values(row)[0] === by));
}

const gap = (one) => Math.max(one.sure_low - one.nominal, one.nominal - one.sure_high);
const inWords = (one) => `${one.misses} of ${one.n}; exact ${percent(one.low)} to ${percent(one.high)}, at any look ${percent(one.always_low)} to ${percent(one.always_high)}`;
const shared = (row, name) => { const one = exceeded(row); return { name, share: one.share, low: one.low, high: one.high, bad: one.outside, text: inWords(one) }; };

/** Histogram of the phases chosen, added up. */
function pit() {
  const mine = told.coverage.pit.filter(within);
  return mine.reduce((sum, one) => sum.map((w, i) => w + one.weights[i]), Array(20).fill(0));
}

// The sections: [id, title, words, query, draw(place, under)].

const SECTIONS = [
  ["coverage", "Did the answers come true?", {
    Shows: "Share of phases that took longer than the answered quantile, with its exact 95 % interval. Worst on top; red where it is off the promise whatever became of those that were cut off.",
    Good: "Intervals that contain the dashed line. One in twenty misses it by luck; one whose interval at any look misses it too is no luck.",
    "If not": "Right of the line, answers were too short: plan with a higher quantile there until more is learned. Left of it: safe, but wasteful.",
  }, "coverage", (place, under) => {
    const rows = strata(told.coverage).sort((a, b) => gap(exceeded(b)) - gap(exceeded(a)));
    shares(place, rows.slice(0, MOST_ROWS).map((row) => shared(row, nameOf(row))), 1 - chosen().p, passed());
    under.replaceChildren(table(["Stratum", "Answers", "Cut off", "Failed", "Passed", "Share", "Exact 95 %", "At any look", "Weighted"], rows.map((row) => {
      const one = exceeded(row);
      return [nameOf(row), count(row.n), count(row.censored), count(row.failed), `${one.misses} of ${one.n}`, percent(one.share),
        `${percent(one.low)} to ${percent(one.high)}`, `${percent(one.always_low)} to ${percent(one.always_high)}`, percent(one.weighted)];
    }), "Coverage by stratum"));
  }],
  ["reliability", "Every level at once", {
    Shows: "How many phases had ended by each quantile, against how many were promised.",
    Good: "A line on the diagonal.",
    "If not": "Below the diagonal answers were too short at those levels, above it too long.",
  }, "pit", (place) => reliability(place, pit())],
  ["pit", "Where in its distribution each phase ended", {
    Shows: "The answered distribution in twenty parts of equal chance, and how many phases ended in each.",
    Good: "Bars near the dashed line.",
    "If not": "Tall at both ends: too narrow. Tall in the middle: too wide. Sloped: too short or too long.",
  }, "pit", (place) => histogram(place, pit())],
  ["time", "The same over time", {
    Shows: "Answers about a phase in parts of equal counts in order of start; upright lines are drift that was found and what followed.",
    Good: "Points around the dashed line, and back at it soon after a change.",
    "If not": "A step that stays: something changed and nothing was noticed. Declare it, or look at the drift log below.",
  }, "over_time", (place) => {
    const phase = chosen().phase || told.coverage.over_time.find((row) => row.asked === chosen().asked)?.phase;
    const rows = told.coverage.over_time.filter((row) => row.asked === chosen().asked && row.phase === phase);
    const changes = told.drift.changes.map((one) => ({ at: utc(one.made_ns), text: spaced(one.action) }));
    overTime(place, rows.map((row) => ({ ...shared(row, ""), at: utc(row.from_ns) })), 1 - chosen().p, changes, `${phase ?? ""} ${passed()}`);
  }],
  ["sharp", "Sharpness against skill", {
    Shows: "Each stratum: how wide answers were beside the spread of all such phases, and how much better they scored than that spread.",
    Good: "Left and high: narrow and right. Coverage alone can be had by answering very wide.",
    "If not": "Right: tell more in the context, or record more of this kind. Below 0: worse than knowing nothing but the phase.",
  }, "sharpness", (place, under) => {
    const rows = strata(told.sharpness).filter((row) => row.skill !== null && row.relative_width !== null);
    points(place, rows.map((row) => ({ x: row.relative_width, y: row.skill, name: nameOf(row), n: row.completed })), "width over that of all such phases", "skill");
    under.replaceChildren(table(["Stratum", "Completed", "CRPS", "All such phases", "Skill", "Width", "Median off", "Mean off"], strata(told.sharpness).map((row) => [
      nameOf(row), count(row.completed), number(row.crps_log), number(row.crps_unconditional), number(row.skill), number(row.relative_width),
      percent(row.median_bias), row.mean_bias === null ? "–" : percent(row.mean_bias)]), "Scores by stratum"));
  }],
  ["baselines", "Beside simple forecasts", {
    Shows: "Mean score (CRPS in log time, nats) of what was answered, of the median of the last nine, and of the spread of all such phases.",
    Good: "The first bar is the lowest.",
    "If not": "Where the last nine score better, recent history says more than the model: look for drift there.",
  }, "sharpness", (place) => {
    const rows = told.sharpness.margins.filter((row) => within(row) && STRATA.every((s) => row[s] === null));
    grouped(place, rows.map((row) => row.phase), { answered: rows.map((r) => r.crps_log), "last nine": rows.map((r) => r.crps_of_nine), "all such phases": rows.map((r) => r.crps_unconditional) }, "score (nats)");
  }],
  ["elapsed", "Asked while running", {
    Shows: "The same share for answers given when so much of the usual time had passed.",
    Good: "Intervals that contain the dashed line at every age.",
    "If not": "Off at late ages only: hangs and stragglers are not told apart yet. Do not kill by these quantiles there.",
  }, "elapsed", (place) => {
    const rows = told.coverage.elapsed.filter((row) => chosen().phase === "" || row.phase === chosen().phase);
    shares(place, rows.map((row) => shared(row, `${row.phase}, from ${row.elapsed_from} of usual`)), 1 - chosen().p, passed());
  }],
  ["bracket", "What the cut-off ones could change", {
    Shows: "The share passed if every phase that was cut off would have ended in time, up to the share if none would have.",
    Good: "Short bars that contain the dashed line.",
    "If not": "A long bar: so many were cut off that coverage there is a guess. Cancel later, or send heartbeats.",
  }, "coverage", (place) => {
    const rows = strata(told.coverage).slice(0, MOST_ROWS);
    spans(place, rows.map((row) => { const one = exceeded(row); return { name: nameOf(row), low: one.if_kept, high: one.if_missed, text: `${one.unresolved} unresolved of ${one.n + one.unresolved}: ${percent(one.if_kept)} to ${percent(one.if_missed)}` }; }), 1 - chosen().p, passed());
  }],
  ["plans", "Plans", {
    Shows: "The chance that was answered for plans against the share that met their deadline or need.",
    Good: "Points on the diagonal; of those that hold at 95 %, at least 95 % do.",
    "If not": "Below it: stages move together more than assumed. The lower bound already allows for what was seen.",
  }, "plans", (place, under) => {
    plans(place, told.coverage.plans);
    under.replaceChildren(table(["Question", "Answered from", "Plans", "Met", "Exact 95 %", "Brier", "Held", "Held and met"], told.coverage.plans.map((row) => [
      row.question, percent(row.answered_from), count(row.n), count(row.met), `${percent(row.low)} to ${percent(row.high)}`, number(row.brier), row.held, row.held_and_met]), "Plans by chance"));
  }],
  ["support", "What answers rest on", {
    Shows: "The newest answers by status. The table has the strata with the least evidence first.",
    Good: "Mostly calibrated; thin and shadow only where work is new.",
    "If not": "Thin cells need more outcomes of their kind; shadow answers are not for decisions yet.",
  }, "support", (place, under) => {
    const phases = told.support.margins.filter((row) => within(row) && STRATA.every((s) => row[s] === null));
    const share = (status) => phases.map((row) => (100 * row[status]) / row.answers);
    grouped(place, phases.map((row) => row.phase), { calibrated: share("calibrated"), thin: share("thin"), extrapolated: share("extrapolated"), shadow: share("shadow") }, "of the answers (%)", true);
    under.replaceChildren(
      table(["Stratum", "Answers", "Calibrated", "Thin", "Shadow", "Outcomes", "Effective", "Claimed to"], strata(told.support).map((row) => [
        nameOf(row), count(row.answers), count(row.calibrated), count(row.thin), count(row.shadow), number(row.median_n), number(row.median_n_eff), levelName(row.median_claimed_to)]), "Support by stratum"),
      table(["Reason", "Phase", "Status", "Answers"], told.support.reasons.map((row) => [spaced(row.reason), row.phase, row.status, count(row.answers)]), "Reasons"),
    );
  }],
  ["drift", "What changed", {
    Shows: "Drift that was found, what followed, and what differs between the newest profiles of a host.",
    Good: "Alarms that match something you did, each undone after a while.",
    "If not": "An alarm nobody can explain: look at that host's clocks, neighbours and driver.",
  }, "drift", (place, under) => {
    place.remove();
    const changes = told.drift.changes.map((one) => [utc(one.made_ns).slice(0, 19), one.kind, one.subject, spaced(one.action), one.reason, one.undone_ns ? `${utc(one.undone_ns).slice(0, 19)}: ${one.undone_reason}` : "stands"]);
    const profiles = told.drift.profiles.flatMap((one) => one.changes.map((line) => [one.host, `${one.before.version} to ${one.after.version}`, line]));
    under.replaceChildren(
      changes.length ? table(["When (UTC)", "Kind", "Where", "What was done", "Why", "Undone"], changes, "Drift log") : element("p", { class: "note" }, "No drift is on record."),
      profiles.length ? table(["Host", "Versions", "Difference"], profiles, "Profiles") : element("p", { class: "note" }, "No host was measured twice."),
    );
  }],
  ["shadow", "Those who do not answer", {
    Shows: "Challengers and outside predictors on the same phases as what was served; a ratio below 1 is better than served.",
    Good: "Nobody is surely better than who answers.",
    "If not": "One whose interval lies below 1 for long: the rule, or you, may have it answer.",
  }, null, (place, under) => {
    place.remove();
    const rows = told.shadow.standings.map((one) => [one.predictor, one.phase ?? "all phases", one.counts.scored, number(one.predictor_crps_log), number(one.champion_crps_log),
      one.ratio ? `${number(one.ratio.estimate)} (${number(one.ratio.low)} to ${number(one.ratio.high)})` : "not known yet", `${one.action}: ${one.reason}`]);
    under.replaceChildren(rows.length ? table(["Predictor", "Phase", "Scored", "CRPS", "Served", "Ratio", "Rule"], rows, "Scoreboard") : element("p", { class: "note" }, "Nobody else has forecast yet."));
  }],
];

const QUERIES = { ...told.coverage.queries.figures, ...told.sharpness.queries.figures, ...told.support.queries.figures, ...told.drift.queries.figures };

function build() {
  for (const [id, title, words, query] of SECTIONS) {
    const list = Object.entries(words).flatMap(([name, text]) => [element("dt", {}, name), element("dd", {}, text)]);
    const plot = element("div", { id, class: "plot", role: "img", "aria-labelledby": `${id}-title` });
    const nothing = element("p", { class: "note", hidden: "" }, "There is nothing of this kind yet.");
    const parts = [element("h2", { id: `${id}-title` }, title), plot, nothing, element("dl", { class: "words" }, ...list), element("div", { id: `${id}-under` })];
    if (query) parts.push(element("details", {}, element("summary", {}, "The query"), element("pre", { tabindex: "0" }, QUERIES[query])));
    $("sections").append(element("section", { class: "card", "aria-labelledby": `${id}-title` }, ...parts));
  }
}

function show() {
  for (const [id, , , , drawn] of SECTIONS) drawn($(id) ?? element("div"), $(`${id}-under`));
}

/** What a link to a stratum asks for, such as #asked=at_start&phase=service&host=north. */
function follow() {
  const asked = new URLSearchParams(location.hash.slice(1));
  const set = (id, value) => { if (value !== null && [...$(id).options].some((one) => one.value === value)) $(id).value = value; };
  for (const id of ["asked", "level", "phase", "by"]) set(id, asked.get(id));
}

function summary() {
  const pooled = told.coverage.pooled.find((row) => row.asked === "at_start");
  const one = pooled?.exceeded.find((e) => e.level === 0.9);
  const answers = told.support.pooled.reduce((sum, row) => sum + row.answers, 0);
  const calibrated = told.support.pooled.reduce((sum, row) => sum + row.calibrated, 0);
  const skill = told.sharpness.pooled.find((row) => row.asked === "at_start")?.skill ?? null;
  $("when").textContent = told.committed_ns ? `As of commit ${count(told.as_of_commit)}, ${utc(told.committed_ns).slice(0, 19)} UTC` : "The store is empty";
  $("tiles").append(
    tile("Answers with outcomes", count(told.coverage.answers), `at most ${count(told.newest)}, the newest`),
    tile("Passed their p90", one ? percent(one.share) : "–", one ? `${percent(one.low)} to ${percent(one.high)}; 10 % promised` : "none yet"),
    tile("Skill", number(skill), "over the spread of all such phases; 1 is perfect"),
    tile("Calibrated answers", answers ? percent(calibrated / answers) : "–", `of the newest ${count(answers)}`),
  );
  $("worst").textContent = told.coverage.worst ? `Farthest off: ${told.coverage.worst}.` : "No answer about a named attempt has an outcome yet.";
  $("setup").textContent = told.coverage.queries.setup.map((one) => `${one};`).join("\n\n");
}

const dark = window.matchMedia("(prefers-color-scheme: dark)");
function theme() {
  const name = $("theme").value;
  document.documentElement.dataset.theme = name === "auto" ? (dark.matches ? "dark" : "light") : name;
  show();
}

const options = (id, values) => $(id).append(...values.map(([value, text]) => element("option", { value }, text)));
const phases = [...new Set(told.coverage.pooled.length ? [...told.coverage.margins, ...told.support.margins].map((row) => row.phase) : [])].sort();
options("phase", [["", "all"], ...phases.map((phase) => [phase, spaced(phase)])]);
options("by", [["state and host", "by state and host"], ["phase", "phase alone"], ...STRATA.map((s) => [s, `by ${spaced(s)}`])]);
build();
follow();
summary();
theme();
for (const id of ["asked", "level", "phase", "by"]) $(id).addEventListener("change", show);
$("theme").addEventListener("change", theme);
dark.addEventListener("change", theme);
window.addEventListener("hashchange", () => { follow(); show(); });
