// Charts over the last hour or day, from the samples that the broker always takes.

import { h } from "../dom.js";
import { segments } from "./basics.js";

const SPANS = [["hour", "Last hour"], ["day", "Last day"]];
const KEPT = { hour: 720, day: 1440 };

/**
 * *charts* are updated together. `load(span, after)` returns `items` behind the sample number *after* and `interval_s`; `choice` is the switch of spans,
 * whose state is part of the address.
 */
export function history(view, { charts, load }) {
  let span = view.query.span === "day" ? "day" : "hour";
  let samples = [];
  let intervalS = Infinity;
  const choice = segments("Span", SPANS, span, (value) => {
    span = value;
    samples = [];
    view.replaceQuery({ span: span === "hour" ? "" : span });
    return reload();
  });

  function add(items, interval) {
    intervalS = interval ?? intervalS;
    const first = items[0]?.number ?? Infinity;
    samples = [...samples.filter((one) => one.number < first), ...items].slice(-KEPT[span]);
    for (const chart of charts) chart.update(samples, intervalS);
  }

  async function reload() {
    const asked = span;
    try {
      const { items, interval_s: interval } = await load(asked, Math.max(0, (samples.at(-1)?.number ?? 0) - 1));
      if (asked === span) add(items, interval);
    } catch { /* the charts stay as they are: the page reports errors of its other requests */ }
  }

  return {
    choice: h("div", { class: "row apart" }, h("span"), choice), reload, last: () => samples.at(-1),
    /** Adds samples of the last hour that arrived otherwise. */
    take(items) { if (span === "hour" && samples.length) add(items); },
  };
}
