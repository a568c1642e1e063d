// One message of a queue: properties, annotations and body, and what can be done with it.

import { h } from "../dom.js";
import { path } from "../api.js";
import { bytes, date, exact, text } from "../format.js";
import { button, facts, link, noteBox, panel } from "../parts/basics.js";
import { region } from "../parts/region.js";
import { to } from "../router.js";
import { act, messageState } from "./messages.js";
import { page } from "./page.js";

const TIMES = ["creation-time", "absolute-expiry-time"];

export function messagePage(view) {
  const { name, position } = view.params;
  const { element } = region(view, { lines: 10, load: (signal) => view.api.get(path`/queues/${name}/messages/${position}`, {}, signal), paint: (one) => message(view, name, one) });
  return page(`Message ${position}`, { crumbs: [["Queues", "#/queues"], [name, to`/queues/${name}`], ["Messages", to`/queues/${name}/messages`]] }, element);
}

function message(view, queue, one) {
  const back = () => view.go(to`/queues/${queue}/messages`);
  return h("div", { class: "stack" },
    h("div", { class: "row" }, messageState(one), link("Timeline", `#/trace?${new URLSearchParams({ id: one.id })}`, { icon: "timeline", kind: "small" }),
      button("Retry", () => act(view, queue, [one.position], "retry", back), { icon: "refresh", kind: "small" }),
      button("Move", () => act(view, queue, [one.position], "move", back), { kind: "small" }),
      button("Delete", () => act(view, queue, [one.position], "delete", back), { kind: "small danger" })),
    one.malformed && noteBox("bad", `The encoding of this message is damaged: ${one.malformed}`),
    one.due && noteBox("info", "This message is scheduled. It cannot be moved, retried or deleted before its delivery time; a purge of the queue removes it."),
    panel("Body", bodyOf(one)),
    h("div", { class: "grid" },
      panel("Properties", pairs(one.properties, "This message has no properties.")),
      panel("Application properties", pairs(one["application-properties"], "This message has no application properties.")),
      panel("Delivery", facts([["ID in the store", one.id], ["Position", one.position], ["Size", bytes(one.size)], ["Due", one.due && exact(one.due)], ["Failures", one.failures],
        ...Object.entries(one.header ?? {}).map(([key, value]) => [key, text(value)])])),
      panel("Annotations", pairs(one["message-annotations"], "This message has no annotations."))));
}

function bodyOf(one) {
  const { body } = one;
  if (body === null || body === undefined || body === "") return h("p", { class: "muted" }, "The body is empty.");
  return h("div", { class: "stack" }, h("pre", { class: "body", tabindex: 0, "aria-label": "Body" }, readable(body)),
    h("p", { class: "muted" }, [one["body-kind"] && `AMQP ${one["body-kind"]}`, one.properties?.["content-type"], one["body-encoding"] === "base64" && "binary, shown in base64", one["body-cut"] && "only the beginning is shown"].filter(Boolean).join(" · ")));
}

/** JSON with indentation, and any other text unchanged. */
function readable(body) {
  if (typeof body !== "string") return JSON.stringify(body, null, 2);
  if (!/^\s*[[{]/.test(body)) return body;
  try {
    return JSON.stringify(JSON.parse(body), null, 2);
  } catch {
    return body;
  }
}

function pairs(values, none) {
  const found = Object.entries(values ?? {});
  if (!found.length) return h("p", { class: "muted" }, none);
  return facts(found.map(([key, value]) => [h("code", {}, key), TIMES.includes(key) && date(value) ? exact(value) : typeof value === "object" ? h("pre", {}, JSON.stringify(value, null, 2)) : text(value)]));
}
