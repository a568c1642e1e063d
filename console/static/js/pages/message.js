// One message of a queue: properties, annotations and body, and what can be done with it.

import { h } from "../dom.js";
import { path } from "../api.js";
import { bytes, count, date, duration, exact, text } from "../format.js";
import { badge, button, facts, link, noteBox, panel } from "../parts/basics.js";
import { copyLink } from "../parts/copy.js";
import { region } from "../parts/region.js";
import { to } from "../router.js";
import { act, messageState } from "./messages.js";
import { page } from "./page.js";

const TIMES = /-time$/;

export function messagePage(view) {
  const { name, position } = view.params;
  const { element } = region(view, { lines: 10, load: (signal) => view.api.get(path`/queues/${name}/messages/${position}`, {}, signal), paint: (one) => message(view, name, one) });
  return page(`Message ${position}`, { crumbs: [["Queues", "#/queues"], [name, to`/queues/${name}`], ["Messages", to`/queues/${name}/messages`]], actions: [copyLink()] }, element);
}

const DEATHS = "x-opt-deaths";
const LABELS = { durable: "Durable", priority: "Priority", ttl: "Time to live", "first-acquirer": "First acquirer", "delivery-count": "Failed deliveries before" };

function message(view, queue, one) {
  const back = () => view.go(to`/queues/${queue}/messages`);
  const annotations = Object.entries(one["message-annotations"] ?? {}).filter(([key]) => key !== DEATHS);
  const deaths = one["message-annotations"]?.[DEATHS];
  return h("div", { class: "stack" },
    h("div", { class: "row apart" }, messageState(one), h("div", { class: "row" }, link("Timeline", `#/trace?${new URLSearchParams({ id: one.id })}`, { icon: "timeline", kind: "small" }),
      button("Retry", () => act(view, queue, [one.position], "retry", back), { icon: "refresh", kind: "small" }),
      button("Move", () => act(view, queue, [one.position], "move", back), { kind: "small" }),
      button("Delete", () => act(view, queue, [one.position], "delete", back), { kind: "small danger" }))),
    one.malformed && noteBox("bad", `The encoding of this message is damaged: ${one.malformed}`),
    one.due && noteBox("info", "This message is scheduled. It cannot be moved, retried or deleted before its delivery time; a purge of the queue removes it."),
    h("div", { class: "grid wide-first" },
      h("div", { class: "stack" }, panel("Body", bodyOf(one)), Array.isArray(deaths) && deaths.length > 0 && panel("Dead-letter history", deathList(deaths)),
        annotations.length > 0 && panel("Annotations", pairs(Object.fromEntries(annotations)))),
      h("div", { class: "stack" }, panel("Properties", pairs(one.properties, "This message has no properties.")),
        panel("Application properties", pairs(one["application-properties"], "This message has no application properties.")),
        panel("Delivery", facts([["ID in the store", String(one.id)], ["Position", String(one.position)], ["Size", bytes(one.size)], ["Due", one.due && exact(one.due)],
          ["Failed deliveries here", count(one.failures)],
          ...Object.entries(one.header ?? {}).map(([key, value]) => [LABELS[key] ?? key, headerValue(key, value)])])))));
}

function headerValue(key, value) {
  if (value === null || value === undefined) return null;
  if (typeof value === "boolean") return value ? "yes" : "no";
  return key === "ttl" ? duration(value / 1000) : text(value);
}

/** Where and why the message was dead-lettered, the last death first. */
function deathList(deaths) {
  return h("ul", { class: "deaths" }, deaths.map((one) => h("li", {}, h("div", {}, badge(text(one.reason).replaceAll("_", " "), "bad"), " in ", h("a", { href: to`/queues/${text(one.queue)}` }, text(one.queue)),
    one.count > 1 && ` ${count(one.count)} times`),
  h("div", { class: "muted" }, one.count > 1 ? `${exact(one["first-time"])} to ${exact(one["last-time"])}` : exact(one["last-time"] ?? one["first-time"])),
  Object.entries(one).filter(([key, value]) => !["queue", "reason", "count", "first-time", "last-time"].includes(key) && value !== null)
    .map(([key, value]) => h("div", { class: "muted" }, h("code", {}, key), " ", text(value))))));
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
  return facts(found.map(([key, value]) => [h("code", {}, key), TIMES.test(key) && typeof value !== "object" && date(value) ? exact(value) : typeof value === "object" ? h("pre", {}, JSON.stringify(value, null, 2)) : text(value)]));
}
