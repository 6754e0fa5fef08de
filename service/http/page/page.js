// The page: choices, what they ask for, and where the answers go. Light figures refresh by themselves; a question is asked again
// only when a choice changes or the button is pressed, since every answer is kept in the ledger.

import * as calls from "./calls.js";
import * as plots from "./plots.js";
import * as words from "./words.js";

const LIGHT_MS = 2000;
const HEAVY_EVERY = 4;
const SHOWN = [0.5, 0.9, 0.95, 0.99];
const MOST_BARS = 12;
const MOST_STRATA = 16;
const FIRST_PHASES = ["service", "setup", "completion"];
const UNKNOWN = "{}";

const $ = (id) => document.getElementById(id);
const known = { overview: null, contexts: new Map([[UNKNOWN, {}]]), running: null, coverage: null, whole: null, rest: null, commit: -1 };

// ---- small pieces of the document -------------------------------------------------------------------------------------------

function element(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  made.append(...children.filter((child) => child !== null));
  return made;
}

/** Replace what a place holds, but only if it would look different: no flicker, no lost selection. */
function fill(place, children) {
  const next = element("div", {}, ...children);
  if (next.innerHTML !== place.innerHTML) place.replaceChildren(...next.childNodes);
}

const tile = (name, value, note) => element("div", {}, element("dt", {}, name), element("dd", {}, value, note ? element("small", {}, note) : null));
const badge = (status) => element("span", { class: `badge ${words.tone(status)}` }, status);
const number = (text, css = "") => element("td", { class: `number ${css}`.trim() }, text);
const cell = (text) => element("td", {}, text);

/** Offer options without disturbing a choice that is still among them. */
function offer(select, options) {
  const chosen = select.value;
  fill(select, options.map(([value, text]) => element("option", { value }, text)));
  if (options.some(([value]) => value === chosen)) select.value = chosen;
}

function complain(error) {
  $("problem").hidden = !error;
  $("problem").textContent = error ? error.message : "";
}

// ---- how far the service has come ---------------------------------------------------------------------------------------------

function showOverview(told) {
  const ago = (ns) => words.age((told.now_ns - ns) / 1e9);
  const behind = told.last_commit - told.learned_to;
  fill($("state"), [
    tile("Last commit", words.count(told.last_commit), told.last_commit_ns ? ago(told.last_commit_ns) : "nothing committed"),
    tile("Learned up to", words.count(told.learned_to), behind > 0 ? `${words.plural(behind, "commit")} ago; answers and scores are commits too` : "the newest commit"),
    tile("Phases that ended", words.count(told.ended), `${words.plural(told.quarantined, "span")} quarantined`),
    tile("Answers not yet kept", words.count(told.ledger_pending), "normally 0 within a second"),
    tile("Model", told.model_id ? told.model_id.slice(0, 8) : "none yet", told.model_fitted_ns ? `fitted ${ago(told.model_fitted_ns)} on ${words.plural(told.model_observations, "row")}` : "fitted once phases end"),
  ]);
  $("health").textContent = told.ready ? "answering" : "waiting for the first outcomes";
  $("health").className = `badge ${told.ready ? "good" : "warn"}`;
  $("empty").hidden = told.ready;
  for (const id of ["ask", "now", "truth"]) $(id).hidden = !told.ready;
  const ordered = [...FIRST_PHASES.filter((phase) => told.phases.includes(phase)), ...told.phases.filter((phase) => !FIRST_PHASES.includes(phase))];
  offer($("phase"), ordered.map((phase) => [phase, phase.replaceAll("_", " ")]));
  showStale();
}

function showStale() {
  const stale = known.whole && known.overview.as_of_commit > known.whole.as_of_commit;
  $("again").classList.toggle("stale", Boolean(stale));
  $("again").textContent = stale ? "Ask again: more was learned since" : "Ask again";
}

// ---- how long will it take ----------------------------------------------------------------------------------------------------

function showContexts(told) {
  const chosen = $("context").value;
  const kept = new Map([[UNKNOWN, {}], ...told.contexts.map(({ context }) => [JSON.stringify(context), context])]);
  if (chosen && known.contexts.has(chosen)) kept.set(chosen, known.contexts.get(chosen));
  known.contexts = kept;
  const options = [...kept].map(([key, context]) => [key, words.context(context)]).sort((a, b) => (a[0] === UNKNOWN) - (b[0] === UNKNOWN) || a[1].localeCompare(b[1]));
  offer($("context"), options);
  if (!chosen && told.contexts.length) $("context").value = JSON.stringify(told.contexts[0].context);
}

let asking = 0;
async function ask() {
  const turn = ++asking;
  const whole = await calls.predict(known.contexts.get($("context").value) ?? {}, $("phase").value);
  if (turn !== asking) return;
  if (!whole.quantiles_s) throw new Error(`${whole.needs}.`);
  known.whole = whole;
  known.rest = null;
  showAnswer();
  await askRest();
}

const at = (answer, p) => answer.quantiles_s[answer.levels.indexOf(p)];
const mostS = () => 1.1 * at(known.whole, 0.995);
const elapsedS = () => (mostS() * Number($("elapsed").value)) / Number($("elapsed").max);

async function askRest() {
  const turn = asking;
  const waited = elapsedS();
  const rest = waited > 0 ? await calls.residual(known.contexts.get($("context").value) ?? {}, known.whole.phase, waited) : null;
  if (turn !== asking || waited !== elapsedS()) return;
  known.rest = rest;
  showRest();
}

function showAnswer() {
  const answer = known.whole;
  const p90 = words.time(at(answer, 0.9));
  fill($("verdict"), [badge(answer.status), ` Half end within ${words.time(at(answer, 0.5))}, nine in ten within ${p90}. `, `The answer is ${words.standing(answer.status, answer.reasons)}`]);
  const beyond = new Map(answer.beyond.map((one) => [one.level, one]));
  const note = (p) => (beyond.has(p) ? `a guess: ${words.plural(beyond.get(p).needs_n, "more outcome")} needed` : "claimed");
  fill($("quantiles"), [
    ...SHOWN.map((p) => tile(words.level(p), words.time(at(answer, p)), note(p))),
    tile("Mean", words.time(answer.mean_s), `up to ${words.time(answer.horizon_s)}`),
    tile("Completes", answer.p_complete === null ? "–" : words.percent(answer.p_complete), "rather than fails"),
  ]);
  const { support } = answer;
  $("evidence").textContent = `Evidence: ${words.plural(support.n, "outcome")} of the same ${support.level}, levels claimed up to ${words.level(Math.floor(answer.claimed_to * 1000) / 1000)}; ` +
    `the longest ${answer.phase.replaceAll("_", " ")} known took ${words.time(support.largest_s)}. As of commit ${words.count(answer.as_of_commit)}.`;
  $("elapsed").disabled = !(mostS() > 0);
  plots.density($("density"), answer, SHOWN, $("log").checked);
  showStale();
}

function showRest() {
  const rest = known.rest ?? known.whole;
  const waited = known.rest ? known.rest.elapsed_s : 0;
  $("elapsed-value").textContent = words.time(waited);
  $("elapsed").setAttribute("aria-valuetext", words.time(waited));
  fill($("remaining"), [badge(rest.status), ` After ${words.time(waited)}, half end within another ${words.time(at(rest, 0.5))}, nine in ten within ${words.time(at(rest, 0.9))}.`]);
  plots.residual($("residual"), known.whole, known.rest, waited, $("log").checked);
}

// ---- running now --------------------------------------------------------------------------------------------------------------

function showRunning(told) {
  const shown = told.phases.slice(0, MOST_BARS);
  $("now-figure").hidden = shown.length === 0;
  $("now-note").textContent = told.attempts === 0 ? "Nothing runs now. An attempt appears here as soon as its first boundary is sent."
    : `${words.plural(told.attempts, "attempt")} with ${words.plural(told.phases.length, "open phase")}` + (told.phases.length > shown.length ? `; the newest ${shown.length} are drawn.` : ".");
  if (shown.length === 0) return;
  const left = (row, p) => (row.remaining_s ? words.time(row.remaining_s[told.levels.indexOf(p)]) : "–");
  fill($("running-rows"), shown.map((row) => element("tr", {},
    element("th", { scope: "row" }, row.attempt_id), cell(row.phase.replaceAll("_", " ")), cell([row.context.host ?? "unknown", row.context.state].filter(Boolean).join(", ")),
    number(words.time(row.elapsed_s)), number(left(row, 0.5)), number(left(row, 0.9)), number(left(row, 0.95)), element("td", {}, badge(row.status)))));
  plots.running($("running"), shown, told.levels);
}

// ---- did the answers come true --------------------------------------------------------------------------------------------------

function showCoverage() {
  const told = known.coverage;
  const p = Number($("level").value);
  const gap = (row) => { const one = row.exceeded.find((e) => e.level === p); return Math.max(one.low - one.nominal, one.nominal - one.high); };
  const rows = told.strata.filter((row) => row.asked === $("asked").value).sort((a, b) => gap(b) - gap(a));
  const shown = rows.slice(0, MOST_STRATA);
  $("truth-body").hidden = told.answers === 0;
  $("truth-note").textContent = told.answers === 0
    ? "No answer about a named attempt has an outcome yet. Send attempt_ids with /v1/predict, then the attempts' events: their truth is joined here."
    : `${words.plural(told.answers, "answer")} with what became of them. Farthest off: ${told.worst}.` + (rows.length > shown.length ? ` The worst ${shown.length} of ${rows.length} strata are shown.` : "");
  if (told.answers === 0) return;
  const past = (row, q) => {
    const one = row.exceeded.find((e) => e.level === q);
    return number(one.n ? `${words.percent(one.share)} of ${one.n}` : "–", one.outside ? "outside" : "");
  };
  fill($("coverage-rows"), shown.map((row) => element("tr", {},
    element("th", { scope: "row" }, row.phase.replaceAll("_", " ")), cell(row.state || "unknown"), cell(row.host || "unknown"),
    number(words.count(row.n)), number(words.count(row.censored)), number(words.count(row.failed)), past(row, 0.5), past(row, 0.9), past(row, 0.95),
    number(row.crps_log === null ? "–" : words.digits(row.crps_log, 2)))));
  plots.coverage($("coverage"), shown, p);
}

// ---- hosts ----------------------------------------------------------------------------------------------------------------------

async function showHosts(told) {
  $("machines").hidden = told.hosts.length === 0;
  offer($("host"), told.hosts.map((row) => [row.host, row.host]));
  const row = told.hosts.find(({ host }) => host === $("host").value);
  if (!row) return;
  const seen = `${words.plural(row.attempts, "attempt")} known, ${words.count(row.running)} running.`;
  $("profile").hidden = row.profile_id === null;
  if (row.profile_id === null) {
    $("host-note").textContent = `${seen} It was never measured: predictions for new work there cannot lean on its rates. Measuring needs a grant; \`phasecast demo\` asks for one.`;
    return;
  }
  const profile = await calls.profile(row.host);
  if (profile.host !== $("host").value) return;
  $("host-note").textContent = `${seen} Measured ${words.age(profile.age_s)}, ${words.plural(profile.versions, "profile")} so far${profile.partial ? "; this one was stopped before all probes were done" : ""}.`;
  showProfile(profile);
}

function showProfile(profile) {
  fill($("rates"), profile.rates.map((one) => {
    const { of, amount } = words.rate(one.name, one.median);
    const against = one.complaints.length ? one.complaints.join("; ") : "nothing";
    return element("tr", {}, element("th", { scope: "row" }, of), number(amount), number(`± ${words.percent(one.spread)}`), number(words.count(one.samples)), cell(against));
  }));
  const { grant } = profile;
  $("grant").textContent = grant === null ? "The grant it was measured under is not in this store."
    : `Measured under a grant of ${grant.granted_by} for ${grant.probes.join(", ")}: at most ${words.plural(grant.max_threads, "thread")} and ${words.time(grant.max_run_s)}. ` +
      (grant.in_force ? "It is in force." : "It has ended; nothing may be measured now.");
  fill($("condition"), Object.entries(profile.condition).flatMap(([name, value]) => [element("dt", {}, name.replaceAll("_", " ")), element("dd", {}, value === null ? "unknown" : String(value))]));
}

// ---- the loop -------------------------------------------------------------------------------------------------------------------

async function refresh(round) {
  known.overview = await calls.overview();
  showOverview(known.overview);
  if (known.overview.ready) {
    known.running = await calls.running();
    showRunning(known.running);
  }
  if (round % HEAVY_EVERY === 0 && known.overview.last_commit !== known.commit) {
    known.commit = known.overview.last_commit;
    showContexts(await calls.contexts());
    known.coverage = await calls.coverage();
    showCoverage();
    await showHosts(await calls.hosts());
  }
  if (known.overview.ready && !known.whole) await ask();
  complain(null);
}

async function loop(round = 0) {
  if (!document.hidden) await refresh(round).catch(complain);
  setTimeout(() => loop(round + 1), LIGHT_MS);
}

/** Answer a choice; what goes wrong is told as a sentence. */
const on = (id, kind, act) => $(id).addEventListener(kind, () => Promise.resolve().then(act).catch(complain));

function redraw() {
  if (known.whole) { showAnswer(); showRest(); }
  if (known.running) showRunning(known.running);
  if (known.coverage) showCoverage();
}

const dark = window.matchMedia("(prefers-color-scheme: dark)");
function applyTheme() {
  const chosen = $("theme").value;
  document.documentElement.dataset.theme = chosen === "auto" ? (dark.matches ? "dark" : "light") : chosen;
  localStorage.setItem("theme", chosen);
  redraw();
}

let sliding;
on("phase", "change", ask);
on("context", "change", ask);
on("again", "click", ask);
on("log", "change", redraw);
on("elapsed", "input", () => {
  clearTimeout(sliding);
  $("elapsed-value").textContent = words.time(elapsedS());
  sliding = setTimeout(() => askRest().catch(complain), 150);
});
on("level", "change", showCoverage);
on("asked", "change", showCoverage);
on("host", "change", async () => showHosts(await calls.hosts()));
on("theme", "change", applyTheme);
dark.addEventListener("change", applyTheme);
$("origin").textContent = location.origin;
$("theme").value = localStorage.getItem("theme") ?? "auto";
applyTheme();
loop();
