// The journal as a picture: one box for each container, filled as far as its records are still needed.

import { h } from "../dom.js";
import { bytes, percent } from "../format.js";

/** Containers with `slot`, `state` (live, pinned, reclaimable, free) and `live_ratio`; *choose(container)* is called with the chosen one. */
export function containerMap(containers, choose) {
  const boxes = containers.map((one) => h("button", { type: "button", class: `container ${stateOf(one)}`, "aria-pressed": "false", data: { focus: `container ${one.slot}` },
    "aria-label": `Container ${one.slot}: ${stateOf(one)}, ${percent(one.live_ratio)} live, ${bytes(one.live_bytes)}`,
    onclick: () => {
      for (const box of boxes) box.setAttribute("aria-pressed", String(box === boxes[containers.indexOf(one)]));
      choose(one);
    } },
  h("span", { class: "level", style: { height: `${100 * (one.live_ratio ?? 0)}%` } }), h("span", { class: "label" }, String(one.slot))));
  return h("div", { class: "containers", role: "group", "aria-label": "Containers of the journal, oldest first" }, boxes);
}

/** The state of a container. One that keeps the log from being shortened is pinned, also if records in it are live. */
export const stateOf = (one) => (one.held_by ? "pinned" : one.state);

export function containerLegend() {
  return h("div", { class: "legend" }, [["live", "Filled: records still needed"], ["pinned", "Keeps the log from being shortened"],
    ["reclaimable", "Can be reclaimed"]].map(([kind, text]) => h("span", {}, h("span", { class: `swatch ${kind}` }), text)));
}
