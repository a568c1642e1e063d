// A question to the history: it may read the whole log, so its progress is shown, and it can be cancelled.

import { h, put } from "../dom.js";
import { percent } from "../format.js";
import { button, empty, failed } from "./basics.js";

const ASK_EACH_MS = 700;
const SHOWN_AFTER_MS = 400;

/**
 * Shows the answer of `load(signal)` as `paint(answer)` in an element. `ask(load, paint)` replaces a question that still runs.
 */
export function question(view) {
  const element = h("div", { class: "stack" });
  let running = null;

  async function ask(load, paint) {
    running?.abort();
    const current = (running = new AbortController());
    const leave = () => current.abort();
    view.signal.addEventListener("abort", leave, { once: true });
    const again = () => ask(load, paint);
    const bar = h("progress", { max: 1, "aria-label": "Progress of the question" });
    const stage = h("span", { role: "status" }, "Reading the log");
    let isCancelled = false;
    const cancel = button("Cancel", () => { isCancelled = true; current.abort(); }, { kind: "small" });
    const waiting = h("div", { class: "question skeleton-like" }, h("div", { class: "row apart" }, stage, cancel), bar);
    element.setAttribute("aria-busy", "true");
    const first = setTimeout(() => put(element, waiting), element.childElementCount ? SHOWN_AFTER_MS : 0);
    const poll = setInterval(async () => {
      const found = await view.api.get("/history/progress", {}, current.signal).catch(() => null);
      const one = found?.running;
      if (!one || current.signal.aborted) return;
      if (one.total) bar.value = one.done / one.total;
      put(stage, one.stage ? `${one.stage.charAt(0).toUpperCase()}${one.stage.slice(1)}${one.total ? `: ${percent(one.done / one.total)}` : ""}` : "Reading the log");
    }, ASK_EACH_MS);
    try {
      const answer = await load(current.signal);
      if (!current.signal.aborted) put(element, paint(answer));
    } catch (error) {
      if (isCancelled && running === current) put(element, empty("Cancelled", "The question was not answered.", button("Ask again", again, { icon: "refresh", kind: "small" })));
      else if (!current.signal.aborted && error.status !== 401) put(element, failed(error, again));
    } finally {
      clearTimeout(first);
      clearInterval(poll);
      view.signal.removeEventListener("abort", leave);
      if (running === current) element.removeAttribute("aria-busy");
    }
  }

  return { element, ask };
}
