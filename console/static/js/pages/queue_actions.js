// Actions on a queue that ask first: purge, move, delete, publish.

import { h } from "../dom.js";
import { amount, count } from "../format.js";
import { path } from "../api.js";
import { confirm, dialog } from "../parts/dialog.js";
import { form } from "../parts/form.js";
import { toast } from "../parts/toast.js";

const NAMED = 12;

export function askPurge(view, queue, done) {
  confirm({
    title: "Purge the queue", label: "Purge", typed: queue.ready ? queue.name : null,
    text: ["This removes ", h("strong", {}, amount(queue.ready, "ready message")), " from ", h("code", {}, queue.name), ". ",
      queue.unsettled ? `${amount(queue.unsettled, "unsettled message")}, which consumers hold or which wait for a retry, may stay.` : ""],
    action: async () => {
      const { purged } = await view.api.post(path`/queues/${queue.name}/purge`, {});
      toast(`Removed ${amount(purged, "message")}`);
      done();
    },
  });
}

export function askDelete(view, queue, done) {
  confirm({
    title: "Delete the queue", label: "Delete", typed: queue.name,
    text: ["This deletes ", h("code", {}, queue.name), ` with its ${amount(queue.messages, "message")} and ${amount(queue.bindings, "binding")}.`,
      queue.consumers ? ` ${count(queue.consumers)} consumers lose their links.` : ""],
    action: async () => {
      await view.api.delete(path`/queues/${queue.name}`);
      toast(`Deleted the queue ${queue.name}`);
      done();
    },
  });
}

/** Asks before the queues are purged or deleted, one after another. Queues that refuse are named. */
export function askBulk(view, action, queues, done) {
  const isPurge = action === "purge";
  const messages = queues.reduce((sum, one) => sum + (isPurge ? one.ready : one.messages), 0);
  const number = amount(queues.length, "queue");
  confirm({
    title: isPurge ? `Purge ${number}` : `Delete ${number}`, label: isPurge ? "Purge" : "Delete", typed: messages || !isPurge ? String(queues.length) : null,
    asked: "To confirm, enter the number of queues: ",
    text: [isPurge ? "This removes " : "This deletes the queues with ", h("strong", {}, amount(messages, isPurge ? "ready message" : "message")), "."],
    fields: h("div", { class: "badges" }, queues.slice(0, NAMED).map((one) => h("code", { class: "badge" }, one.name)), queues.length > NAMED && `and ${count(queues.length - NAMED)} more`),
    action: async () => {
      let failures = 0;
      for (const one of queues) {
        try {
          if (isPurge) await view.api.post(path`/queues/${one.name}/purge`, {});
          else await view.api.delete(path`/queues/${one.name}`);
        } catch (error) {
          failures += 1;
          if (failures <= 3) toast(`${one.name}: ${error.message}`, "warning");
        }
      }
      toast(`${isPurge ? "Purged" : "Deleted"} ${amount(queues.length - failures, "queue")}`);
      done();
    },
  });
}

export function askMove(view, queue, done) {
  const { close } = dialog("Move messages", () => [h("p", {}, "Messages that the target does not accept stay on the queue."), form({
    label: "Move", cancel: () => close(),
    fields: [
      { name: "target", label: "To the address", required: true, help: "A queue, or an exchange and a key, as a client would name it." },
      { name: "create", label: "Create the queue if it does not exist", type: "checkbox" },
      { name: "count", label: "At most", type: "number", help: "Empty: all messages that are on the queue now." },
    ],
    submit: async (entered) => {
      const { moved } = await view.api.post(path`/queues/${queue.name}/move`, entered);
      close();
      toast(`Moved ${amount(moved, "message")} to ${entered.target}`);
      done();
    },
  }).element]);
}

/** A dialog that publishes a test message to *address*, a path of the API; with *hasKey* also a routing key. */
export function askPublish(view, address, title, { hasKey = false, key = "" } = {}, done = () => {}) {
  const { close } = dialog(title, () => form({
    label: "Publish", cancel: () => close(),
    fields: [
      ...(hasKey ? [{ name: "key", label: "Routing key", value: key, keepEmpty: true, help: "Decides which bindings match." }] : []),
      { name: "body", label: "Body", type: "textarea", rows: 5, keepEmpty: true },
      { title: "Properties", fields: [
        { name: "content_type", label: "Content type", placeholder: "text/plain" }, { name: "subject", label: "Subject" },
        { name: "message-id", label: "Message ID" }, { name: "correlation-id", label: "Correlation ID" },
        { name: "application", label: "Application properties", type: "textarea", rows: 3, help: "One name=value on each line.",
          check: (given) => (given.split("\n").every((line) => !line.trim() || line.includes("=")) ? "" : "Each line needs the form name=value.") },
        { name: "durable", label: "Durable", type: "checkbox", value: true },
      ] },
    ],
    submit: async (entered) => {
      const { key: routingKey, body, content_type, durable, application = "", ...properties } = entered;
      const pairs = application.split("\n").filter((line) => line.trim()).map((line) => [line.slice(0, line.indexOf("=")).trim(), line.slice(line.indexOf("=") + 1).trim()]);
      await view.api.post(address, { key: routingKey, body, content_type, durable, properties, application_properties: Object.fromEntries(pairs) });
      close();
      toast("The broker accepted the message");
      done();
    },
  }).element);
}
