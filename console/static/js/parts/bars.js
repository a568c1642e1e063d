// Bars: a list of values with their share of the largest, and one bar made of several parts.

import { h } from "../dom.js";

/** Entries with `label`, `value`, `text` and an optional `series` number. */
export function barList(entries) {
  const largest = Math.max(...entries.map((one) => one.value), 1e-9);
  return h("ul", { class: "bar-list" }, entries.map((one) => h("li", { class: "entry" }, h("span", {}, one.label), h("span", { class: "number" }, one.text),
    h("div", { class: `track s${one.series ?? 1}`, "aria-hidden": "true" }, h("i", { style: { width: `${(100 * one.value) / largest}%` } })))));
}

/** One bar of parts with `label`, `value`, `text`; *total* leaves the rest empty. */
export function stackBar(label, parts, total) {
  const whole = Math.max(total ?? 0, parts.reduce((sum, one) => sum + one.value, 0), 1e-9);
  const description = `${label}: ${parts.map((one) => `${one.label} ${one.text}`).join(", ")}`;
  return h("div", { class: "stack" },
    h("div", { class: "track thick", role: "img", "aria-label": description }, parts.map((one, number) =>
      one.value > 0 && h("i", { class: `s${one.series ?? number + 1}`, style: { width: `${(100 * one.value) / whole}%` } }))),
    h("div", { class: "legend" }, parts.map((one, number) => h("span", {}, h("i", { class: `s${one.series ?? number + 1}` }), one.label, h("b", {}, one.text)))));
}
