// Small pieces of the document. Text always goes in as text, never as markup.

import { tone } from "./words.js";

export const $ = (id) => document.getElementById(id);

export function element(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  made.append(...children.filter((child) => child !== null));
  return made;
}

/** Replace what a place holds, but only if it would look different: no flicker, no lost selection. */
export function fill(place, children) {
  const next = element("div", {}, ...children);
  if (next.innerHTML !== place.innerHTML) place.replaceChildren(...next.childNodes);
}

/** Offer [value, text] options without disturbing a choice that is still among them. */
export function offer(select, options) {
  const chosen = select.value;
  fill(select, options.map(([value, text]) => element("option", { value }, text)));
  if (options.some(([value]) => value === chosen)) select.value = chosen;
}

export const badge = (status) => element("span", { class: `badge ${tone(status)}` }, status);
export const cell = (...children) => element("td", {}, ...children);
export const number = (text, css = "") => element("td", { class: `number ${css}`.trim() }, text);
export const row = (name, ...cells) => element("tr", {}, element("th", { scope: "row" }, name), ...cells);

export function tile(name, value, note) {
  return element("div", {}, element("dt", {}, name), element("dd", {}, value, element("small", {}, note)));
}
