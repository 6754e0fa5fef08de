// What is asked of the API. A refusal comes back as an Error whose message is a sentence.

async function call(path, body) {
  let answer;
  try {
    answer = await fetch(path, body ? { method: "POST", body: JSON.stringify(body) } : { cache: "no-store" });
  } catch {
    throw new Error("The API does not answer; trying again every few seconds. Look whether `phasecast serve` still runs.");
  }
  const told = await answer.json().catch(() => ({}));
  if (!answer.ok) throw new Error(told.fix ? `${told.field}: ${told.fix}.` : `${path} answered ${answer.status}.`);
  return told;
}

/** The levels the ledger keeps: 0.01 ... 0.99, 0.995, 0.999. */
export const LEVELS = [...Array.from({ length: 99 }, (_, i) => (i + 1) / 100), 0.995, 0.999];

export const overview = () => call("/v1/overview");
export const running = () => call("/v1/running");
export const contexts = () => call("/v1/contexts");
export const hosts = () => call("/v1/hosts");
export const profile = (host) => call(`/v1/hosts/${encodeURIComponent(host)}/profile`);
export const coverage = () => call("/v1/reports/coverage");

export async function predict(context, phase) {
  return (await call("/v1/predict", { contexts: [known(context)], phases: [phase], levels: LEVELS })).answers[0];
}

export async function residual(context, phase, elapsedS) {
  const running = [{ context: known(context), phase, elapsed_s: elapsedS }];
  return (await call("/v1/residual", { running, levels: LEVELS })).answers[0];
}

const known = (context) => Object.fromEntries(Object.entries(context).filter(([, value]) => value !== null));
