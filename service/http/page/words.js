// Numbers, units and sentences: what is shown, apart from where.

/** Unit, how many make a second, and the seconds below which it is used. */
const STEPS = [
  ["ns", 1e9, 1e-6], ["µs", 1e6, 1e-3], ["ms", 1e3, 1], ["s", 1, 180], ["min", 1 / 60, 7200], ["h", 1 / 3600, Infinity],
];

/** Unit for times up to `mostS` seconds: its name, and how many of it make a second. */
export function unitFor(mostS) {
  const [unit, perSecond] = STEPS.find(([, , below]) => mostS < below);
  return mostS > 0 ? { unit, perSecond } : { unit: "s", perSecond: 1 };
}

/** A number with three significant digits, never in exponents. */
export function digits(value, significant = 3) {
  const places = value === 0 ? 0 : Math.max(0, significant - 1 - Math.floor(Math.log10(Math.abs(value))));
  return value.toLocaleString("en", { minimumFractionDigits: Math.min(places, 6), maximumFractionDigits: Math.min(places, 6) });
}

/** A time in the unit that suits it. */
export function time(seconds) {
  if (seconds === null || seconds === undefined) return "–";
  const { unit, perSecond } = unitFor(Math.abs(seconds));
  return seconds === 0 ? "0 s" : `${digits(seconds * perSecond)} ${unit}`;
}

/** An age in words, coarse enough not to flicker. */
export function age(seconds) {
  if (seconds < 5) return "just now";
  if (seconds < 90) return `${5 * Math.round(seconds / 5)} s ago`;
  if (seconds < 5400) return `${Math.round(seconds / 60)} min ago`;
  return seconds < 129600 ? `${Math.round(seconds / 3600)} h ago` : `${Math.round(seconds / 86400)} days ago`;
}

export const spaced = (word) => word.replaceAll("_", " ");
export const count = (n) => n.toLocaleString("en");
export const percent = (share) => `${digits(share * 100, share < 0.1 ? 2 : 3)} %`;
export const level = (p) => `p${Number((p * 100).toFixed(1))}`;
export const plural = (n, one, many = `${one}s`) => `${count(n)} ${n === 1 ? one : many}`;

const PREFIXES = [[1e12, "T"], [1e9, "G"], [1e6, "M"], [1e3, "k"], [1, ""]];
const RATE_UNITS = [["_flop_per_s", "FLOP/s"], ["_bytes_per_s", "B/s"], ["_hz", "Hz"], ["_per_s", "/s"]];

/** The unit that a rate's name ends in, as it is written. */
export const quantity = (name) => RATE_UNITS.find(([ending]) => name.endsWith(ending))?.[1] ?? "s";

/** A measured rate, its unit read off the end of its name: what it is of, and how much. */
export function rate(name, value) {
  const found = RATE_UNITS.find(([ending]) => name.endsWith(ending));
  if (!found) {
    return { of: spaced(name.replace(/_s$/, "")), amount: name.endsWith("_s") ? time(value) : digits(value) };
  }
  const [factor, prefix] = PREFIXES.find(([least]) => Math.abs(value) >= least) ?? [1, ""];
  return { of: spaced(name.slice(0, -found[0].length)), amount: `${digits(value / factor)} ${prefix}${found[1]}` };
}

const STATUSES = {
  shadow: ["bad", "not for decisions yet"],
  extrapolated: ["warn", "beyond what was seen"],
  thin: ["warn", "not yet checked enough to be called calibrated"],
  calibrated: ["good", "checked against its own outcomes"],
};
const REASONS = {
  unseen_configuration: "this exact configuration was never seen",
  older_than_any_known: "it has run longer than any run known",
  not_recalibrated: "its track record does not correct it yet",
  no_evidence: "nothing of its kind has ended",
  too_few_outcomes: "too few outcomes",
};

export const tone = (status) => STATUSES[status]?.[0] ?? "warn";

/** What a status and its reasons mean, as one sentence. */
export function standing(status, reasons) {
  const why = reasons.map((word) => REASONS[word] ?? spaced(word)).join("; ");
  return `${STATUSES[status]?.[1] ?? status}${why ? `: ${why}` : ""}.`;
}

const VERDICTS = {
  holds: "that holds",
  safe: "that is safe",
  does_not_hold: "that does not hold",
  cannot_certify: "too little is known to call that",
  too_late: "it is too late to be safe",
  never: "no start is safe, since it may not complete",
  too_few_scenarios: "too few draws to call that safe",
};

/** What is said of a plan, as the end of a sentence. */
export const verdict = (word) => VERDICTS[word] ?? spaced(word);

const NUMBERS = { batch: "batch", size_in: "size", corunners: "co-runners" };

/** A context on one line; what is unknown is left out. */
export function context(known) {
  const words = ["host", "state", "family", "model", "device", "runtime", "precision", "mode"].map((name) => known[name]);
  const numbers = Object.entries(NUMBERS).map(([name, word]) => (Number.isFinite(known[name]) ? `${word} ${known[name]}` : null));
  return [...words, ...numbers].filter(Boolean).join(" · ") || "Nothing known about it";
}
