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
export const drift = () => call("/v1/reports/drift");

export async function predict(context, phase) {
  return (await call("/v1/predict", { contexts: [known(context)], phases: [phase], levels: LEVELS })).answers[0];
}

export async function residual(context, phase, elapsedS) {
  const running = [{ context: known(context), phase, elapsed_s: elapsedS }];
  return (await call("/v1/residual", { running, levels: LEVELS })).answers[0];
}

/** The chance that stages of one attempt, one after another, are done by a deadline. */
export async function chance(context, kinds, deadlineS) {
  const after = (i) => (i > 0 ? { after: [kinds[i - 1]] } : {});
  const stages = kinds.map((kind, i) => ({ name: kind, kind, context: known(context), attempt: "asked", ...after(i) }));
  return only(await call("/v1/chance", { plans: [{ stages, deadline_s: deadlineS }] }));
}

/** When a load must start at the latest to have ended in `needS` seconds, but for a risk `delta`. */
export async function latestStart(context, kind, needS, delta) {
  const question = { load: { name: kind, kind, context: known(context) }, need: { samples_s: [needS] }, delta };
  return only(await call("/v1/latest-start", { questions: [question] }));
}

function only({ answers: [answer] }) {
  if (answer.problem) throw new Error(`${answer.problem.field}: ${answer.problem.fix}.`);
  return answer;
}

const known = (context) => Object.fromEntries(Object.entries(context).filter(([, value]) => value !== null));
