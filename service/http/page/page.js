// The page: choices, what they ask for, and where the answers go. Light figures refresh by themselves; a question is asked again
// only when a choice changes or the button is pressed, since every answer is kept in the ledger.

import * as calls from "./calls.js";
import { $, offer } from "./parts.js";
import * as plans from "./plans.js";
import * as plots from "./plots.js";
import * as views from "./views.js";
import * as words from "./words.js";

const REFRESH_MS = 2000;
const HEAVY_EVERY = 4;
const SHOWN = [0.5, 0.9, 0.95, 0.99];
const MOST_RUNNING = 12;
const MOST_STRATA = 16;
const NOTHING = "{}";

/** What was told last. `rest` is null until a time has been waited; `commit` is that of the heavy figures. */
const last = {
  overview: null, contexts: new Map([[NOTHING, {}]]), running: null, coverage: null, whole: null, rest: null, profile: null, commit: -1,
};

// Asking.

let turn = 0;

async function ask() {
  const mine = ++turn;
  const whole = await calls.predict(chosenContext(), $("phase").value);
  if (mine !== turn) return;
  if (!whole.quantiles_s) throw new Error(`${whole.needs}.`);
  Object.assign(last, { whole, rest: null });
  plans.about(whole);
  showAnswer();
  await askRest();
}

async function askRest() {
  const mine = turn;
  const waited = waitedS();
  const rest = waited > 0 ? await calls.residual(chosenContext(), last.whole.phase, waited) : null;
  if (mine !== turn || waited !== waitedS()) return;
  last.rest = rest;
  showRest();
}

const chosenContext = () => last.contexts.get($("context").value) ?? {};
const longestWaitS = () => 1.1 * last.whole.quantiles_s[last.whole.levels.indexOf(0.995)];
const waitedS = () => (longestWaitS() * Number($("elapsed").value)) / Number($("elapsed").max);

// Showing.

function showAnswer() {
  views.answer(last.whole, SHOWN);
  $("elapsed").disabled = !(longestWaitS() > 0);
  plots.density($("density"), last.whole, SHOWN, $("log").checked);
  showStale();
}

function showRest() {
  const waited = last.rest ? last.rest.elapsed_s : 0;
  views.remaining(last.rest ?? last.whole, waited);
  plots.residual($("residual"), last.whole, last.rest, waited, $("log").checked);
}

function showStale() {
  const stale = Boolean(last.whole) && last.overview.as_of_commit > last.whole.as_of_commit;
  $("again").classList.toggle("stale", stale);
  $("again").textContent = stale ? "Ask again: more was learned since" : "Ask again";
}

/** Offer the contexts of recent work; a chosen one stays, though it may be recent no more. */
function showContexts(told) {
  const chosen = $("context").value;
  const offered = new Map(told.contexts.map(({ context }) => [JSON.stringify(context), context]));
  if (chosen && chosen !== NOTHING) offered.set(chosen, last.contexts.get(chosen));
  const options = [...offered].map(([key, context]) => [key, words.context(context)]);
  options.sort((a, b) => a[1].localeCompare(b[1]));
  last.contexts = offered.set(NOTHING, {});
  offer($("context"), [...options, [NOTHING, words.context({})]]);
  if (!chosen && told.contexts.length) $("context").value = JSON.stringify(told.contexts[0].context);
}

function showRunning() {
  const shown = last.running.phases.slice(0, MOST_RUNNING);
  views.running(last.running, shown);
  if (shown.length) plots.running($("running"), shown, last.running.levels);
}

function showCoverage() {
  const level = Number($("level").value);
  const gap = (stratum) => {
    const one = stratum.exceeded.find((exceeded) => exceeded.level === level);
    return Math.max(one.sure_low - one.nominal, one.nominal - one.sure_high);
  };
  const strata = last.coverage.strata.filter((stratum) => stratum.asked === $("asked").value).sort((a, b) => gap(b) - gap(a));
  const shown = strata.slice(0, MOST_STRATA);
  views.coverage(last.coverage, shown, strata.length);
  if (last.coverage.answers) plots.coverage($("coverage"), shown, level);
}

async function showHosts() {
  const { hosts } = await calls.hosts();
  $("machines").hidden = hosts.length === 0;
  offer($("host"), hosts.map(({ host }) => [host, host]));
  const chosen = hosts.find(({ host }) => host === $("host").value);
  if (!chosen) return;
  const profile = chosen.profile_id === null ? null : await calls.profile(chosen.host);
  if (chosen.host !== $("host").value) return;
  views.host(chosen, profile);
  last.profile = profile;
  showRates();
}

function showRates() {
  if (!last.profile) return;
  const units = [...new Set(last.profile.rates.map(({ name }) => words.quantity(name)))].sort();
  offer($("quantity"), units.map((unit) => [unit, unit]));
  const unit = $("quantity").value;
  plots.rates($("rates-plot"), last.profile.rates.filter(({ name }) => words.quantity(name) === unit), unit);
}

function showProblem(error) {
  $("problem").hidden = !error;
  $("problem").textContent = error ? error.message : "";
}

// Keeping up.

async function refresh(round) {
  last.overview = await calls.overview();
  views.overview(last.overview);
  showStale();
  if (last.overview.ready) {
    last.running = await calls.running();
    showRunning();
  }
  if (round % HEAVY_EVERY === 0 && last.overview.last_commit !== last.commit) {
    showContexts(await calls.contexts());
    last.coverage = await calls.coverage();
    showCoverage();
    views.drift(await calls.drift());
    await showHosts();
    last.commit = last.overview.last_commit;
  }
  if (last.overview.ready && !last.whole) await ask();
  showProblem(null);
}

async function keepUp(round = 0) {
  if (!document.hidden) await refresh(round).catch(showProblem);
  setTimeout(() => keepUp(round + 1), REFRESH_MS);
}

// Choosing.

/** Act on a choice; what goes wrong is told as a sentence. */
const on = (id, kind, act) => $(id).addEventListener(kind, () => Promise.resolve().then(act).catch(showProblem));

function redraw() {
  if (last.whole) {
    showAnswer();
    showRest();
    plans.redraw();
  }
  if (last.running) showRunning();
  if (last.coverage) showCoverage();
  showRates();
}

const dark = window.matchMedia("(prefers-color-scheme: dark)");
function applyTheme() {
  const chosen = $("theme").value;
  const theme = chosen === "auto" ? (dark.matches ? "dark" : "light") : chosen;
  document.documentElement.dataset.theme = theme;
  localStorage.setItem("theme", chosen);
  redraw();
}

let sliding;
function slide() {
  clearTimeout(sliding);
  $("elapsed-value").textContent = words.time(waitedS());
  sliding = setTimeout(() => askRest().catch(showProblem), 150);
}

for (const id of ["phase", "context"]) on(id, "change", ask);
for (const id of ["level", "asked"]) on(id, "change", showCoverage);
on("again", "click", ask);
for (const [id, asking] of [["chance", plans.askChance], ["start", plans.askStart]]) {
  $(`${id}-form`).addEventListener("submit", (event) => {
    event.preventDefault();
    asking(chosenContext(), last.overview.phases).then(() => showProblem(null), showProblem);
  });
}
for (const id of ["deadline", "need"]) on(id, "input", () => { $(id).dataset.chosen = "yes"; });
on("log", "change", redraw);
on("elapsed", "input", slide);
on("host", "change", showHosts);
on("quantity", "change", showRates);
on("theme", "change", applyTheme);
dark.addEventListener("change", applyTheme);

$("origin").textContent = location.origin;
$("theme").value = localStorage.getItem("theme") ?? "auto";
applyTheme();
keepUp();
