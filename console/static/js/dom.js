// Builds elements. Text only ever becomes a text node with visible characters, so a name or a body that others chose cannot become markup, and
// cannot look like another one.

import { visible } from "./visible.js";

const SVG = "http://www.w3.org/2000/svg";

/** An HTML element. Options: attributes, `on…` listeners, `style` and `data` as objects; null and false leave an attribute out. */
export function h(name, options = {}, ...children) {
  return fill(document.createElement(name), options, children);
}

/** An SVG element, in the same way. */
export function s(name, options = {}, ...children) {
  return fill(document.createElementNS(SVG, name), options, children);
}

/** Replaces the children of *element*. */
export function put(element, ...children) {
  element.replaceChildren(...flat(children));
  return element;
}

/** Runs *change*, and then returns the focus to the element with the same `data-focus`, if it was replaced. */
export function keepingFocus(change) {
  const key = document.activeElement?.dataset?.focus;
  change();
  if (key && !document.activeElement?.dataset?.focus) {
    document.querySelector(`[data-focus="${CSS.escape(key)}"]`)?.focus({ preventScroll: true });
  }
}

let serial = 0;
/** An id for an element that a label or a description refers to. */
export const newId = () => `e${++serial}`;

function fill(element, options, children) {
  for (const [key, value] of Object.entries(options)) {
    if (value === undefined || value === null || value === false) continue;
    if (key.startsWith("on")) element.addEventListener(key.slice(2), value);
    else if (key === "style") for (const [name, one] of Object.entries(value)) element.style.setProperty(name, one);
    else if (key === "data") Object.assign(element.dataset, value);
    else if (key === "href" && !value.startsWith("#") && !value.startsWith("/api/")) throw new Error(`not a link of the console: ${value}`);
    else element.setAttribute(key, value === true ? "" : SHOWN.includes(key) ? visible(String(value)) : String(value));
  }
  element.append(...flat(children, element.nodeName === "PRE"));
  return element;
}

const SHOWN = ["title", "aria-label", "aria-valuetext", "placeholder"];
const flat = (children, hasLines) => children.flat(Infinity).filter((one) => one !== null && one !== undefined && one !== false)
  .map((one) => (typeof one === "string" ? visible(one, hasLines) : one));
