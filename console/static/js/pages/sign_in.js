// The sign-in page. The console signs in at the broker with these credentials and keeps nothing of them in the browser.

import { h } from "../dom.js";
import { noteBox } from "../parts/basics.js";
import { form } from "../parts/form.js";
import { mark } from "../parts/icons.js";
import { schemeButton } from "../shell.js";

export function signIn(api, reason, done) {
  const { element, input } = form({
    label: "Sign in",
    fields: [
      { name: "user", label: "User", autocomplete: "username", help: "Leave both fields empty to sign in anonymously, if the broker permits it." },
      { name: "password", label: "Password", type: "password", autocomplete: "current-password" },
    ],
    submit: async ({ user = "", password = "" }) => {
      try {
        done(await api.signIn(user, password));
      } catch (error) {
        throw error.status === 401 || error.status === 403 ? new Error(error.message || "The user or the password is wrong.") : error;
      }
    },
  });
  document.title = "Sign in – CairnMQ";
  queueMicrotask(() => input("user").focus());
  return h("div", { class: "sign-in" }, h("main", { class: "sign-in-card", id: "main", tabindex: -1 }, h("div", { class: "corner" }, schemeButton()), mark(), h("h1", {}, "CairnMQ"),
    h("p", { class: "lead" }, "Sign in to the broker"), reason && noteBox("warn", reason), element));
}
