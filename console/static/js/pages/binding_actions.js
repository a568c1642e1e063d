// Dialogs that add and remove bindings.

import { h } from "../dom.js";
import { path } from "../api.js";
import { confirm, dialog } from "../parts/dialog.js";
import { form } from "../parts/form.js";
import { toast } from "../parts/toast.js";

/** Asks for a binding; what *known* holds (`queue`, `exchange`) is filled in. */
export function askBind(view, known, done) {
  const { close } = dialog("Add a binding", () => form({
    label: "Add binding", cancel: () => close(),
    fields: [
      { name: "exchange", label: "Exchange", required: true, value: known.exchange },
      { name: "queue", label: "Queue", required: true, value: known.queue },
      { name: "key", label: "Key", help: "For a direct exchange the key, for a topic exchange a pattern: * is one word, # any number of words. A fanout exchange needs none." },
      { name: "selector", label: "Selector", help: "Optional: a condition on the message, such as color = 'red'." },
    ],
    submit: async ({ exchange, queue, key = "", selector }) => {
      await view.api.post("/bindings", { exchange, queue, key, arguments: selector ? { "x-selector": selector } : {} });
      close();
      toast(`Bound ${queue} to ${exchange}`);
      done();
    },
  }).element);
}

export function askUnbind(view, binding, done) {
  confirm({
    title: "Remove the binding", label: "Remove",
    text: ["Messages to ", h("code", {}, binding.exchange), " no longer reach ", h("code", {}, binding.queue), binding.key ? [" with the key ", h("code", {}, binding.key)] : "", "."],
    action: async () => {
      await view.api.delete(path`/bindings/${binding.identity}`);
      toast("Removed the binding");
      done();
    },
  });
}
