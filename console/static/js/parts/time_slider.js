// A slider over the history of a store: one point or two. Each handle is an ordinary range input, so that it works with the keyboard.

import { h, s } from "../dom.js";

const STEPS = 1000;

/**
 * `first` and `last`: the ends as numbers; `values`: the points at the beginning; `describe(value)`: their text.
 * `bars`: the activity, each with a `value`; `change(values)` is called after a handle was moved.
 */
export function timeSlider({ first, last, values, describe, bars = [], names, change }) {
  const scale = (last - first) / STEPS || 1;
  const toStep = (value) => Math.round((value - first) / scale);
  const inputs = values.map((value, number) => h("input", { type: "range", min: 0, max: STEPS, value: toStep(value), "aria-label": names[number],
    "aria-valuetext": describe(value), oninput: moved, onchange: () => change(current()) }));
  const largest = Math.max(...bars.map((one) => one.value), 1);
  const drawn = bars.map((one, number) => s("rect", { x: number + 0.12, width: 0.76, y: 1 - one.value / largest, height: one.value / largest, rx: 0.1 }));
  const element = h("div", { class: "range" },
    bars.length > 0 && s("svg", { class: "range-bars", viewBox: `0 0 ${bars.length} 1`, preserveAspectRatio: "none", "aria-hidden": "true" }, drawn),
    h("div", { class: "range-inputs" }, inputs), h("div", { class: "range-ends" }, h("span", {}, describe(first)), h("span", {}, describe(last))));

  /** The points in order. */
  function current() {
    return inputs.map((input) => (Number(input.value) === STEPS ? last : Math.round(first + Number(input.value) * scale))).sort((a, b) => a - b);
  }

  function moved() {
    inputs.forEach((input) => input.setAttribute("aria-valuetext", describe(Math.round(first + Number(input.value) * scale))));
    const [from, to] = values.length > 1 ? current() : [first, current()[0]];
    drawn.forEach((bar, number) => {
      const middle = first + ((last - first) * (number + 0.5)) / bars.length;
      bar.setAttribute("class", middle >= from && middle <= to ? "in" : "");
    });
  }

  moved();
  return { element, current };
}
