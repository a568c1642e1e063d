// Dialogs that add and remove accounts of the broker's users file, and change their passwords.

import { h } from "../dom.js";
import { path } from "../api.js";
import { confirm, dialog } from "../parts/dialog.js";
import { form } from "../parts/form.js";
import { toast } from "../parts/toast.js";

const passwords = (label) => [
  { name: "password", label, type: "password", required: true, autocomplete: "new-password" },
  { name: "repeated", label: "Repeat the password", type: "password", required: true, autocomplete: "new-password",
    check: (given, valueOf) => (given === valueOf("password") ? "" : "The passwords differ.") },
];

export function askAddUser(view, done) {
  ask("Add a user", h("p", {}, "The user can log in to this broker at once. The access rules decide what the user may do."), {
    label: "Add user",
    fields: [{ name: "name", label: "Name", required: true, help: "Without spaces and colons." }, ...passwords("Password")],
    submit: async ({ name, password }) => {
      await view.api.post("/users", { name, password });
      toast(`Added the user ${name}`);
      done();
    },
  });
}

export function askPassword(view, name, done) {
  ask("Change the password", h("p", {}, "User ", h("code", {}, name), ". The old password is no longer valid for logins. Open connections stay open."), {
    label: "Change password", fields: passwords("New password"),
    submit: async ({ password }) => {
      await view.api.patch(path`/users/${name}`, { password });
      toast(`Changed the password of ${name}`);
      done();
    },
  });
}

export function askRemoveUser(view, name, done) {
  confirm({
    title: "Remove the user", label: "Remove", typed: name,
    text: ["This removes the account of ", h("code", {}, name), ", and closes its connections. Its queues and their messages stay."],
    action: async () => {
      await view.api.delete(path`/users/${name}`);
      toast(`Removed the user ${name}`);
      done();
    },
  });
}

/** Opens a dialog with *text* above a form, and puts the focus on the first field. */
function ask(title, text, { fields, label, submit }) {
  const asked = form({ label, fields, cancel: () => close(), submit: async (entered) => { await submit(entered); close(); } });
  const { close } = dialog(title, () => h("div", { class: "stack" }, text, asked.element));
  asked.input(fields[0].name).focus();
}
