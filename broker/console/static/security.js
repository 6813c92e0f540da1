// Users, quotas and ACLs, and whether a principal may do something.

import { fromAddress, link, toAddress } from "./address.js";
import { getJson, mayWrite } from "./api.js";
import { openChange } from "./change.js";
import { field, fill, h, notice, searchInput, select, tag } from "./dom.js";
import { count, plural } from "./format.js";
import { table } from "./table.js";

const RESOURCES = {
  TOPIC: ["READ", "WRITE", "CREATE", "DELETE", "ALTER", "DESCRIBE", "DESCRIBE_CONFIGS", "ALTER_CONFIGS"],
  GROUP: ["READ", "DELETE", "DESCRIBE"],
  CLUSTER: ["CREATE", "ALTER", "DESCRIBE", "CLUSTER_ACTION", "DESCRIBE_CONFIGS", "ALTER_CONFIGS", "IDEMPOTENT_WRITE"],
  TRANSACTIONAL_ID: ["WRITE", "DESCRIBE"],
  DELEGATION_TOKEN: ["DESCRIBE"],
  USER: ["CREATE_TOKENS", "DESCRIBE_TOKENS"],
};

const QUOTAS = {
  user: ["producer_byte_rate", "consumer_byte_rate", "request_percentage", "controller_mutation_rate"],
  ip: ["connection_creation_rate"],
};
const DEFAULT = "<default>";
const DEFAULTS = { search: "" };

export function securityPage() {
  const query = fromAddress(DEFAULTS);
  const problems = h("div", null);
  const rules = h("div", null);
  const search = searchInput(query.search, ({ search: text }) => { query.search = text; toAddress(query, DEFAULTS); drawRules(); });
  const acls = h("section", { class: "card skeleton" });
  const users = h("section", { class: "card" });
  const quotas = h("section", { class: "card" });
  let found = null;
  let isWritable = false;

  function drawRules() {
    const words = query.search.toLowerCase();
    const rows = found.acls.filter((row) => Object.values(row).join(" ").toLowerCase().includes(words));
    fill(rules, aclTable(rows, `${plural(words ? rows.length : found.acl_count, "rule")}. The console acts as ${found.principal}.`, isWritable ? (row) => changeRule("delete", row, refresh) : null));
  }

  async function refresh(signal) {
    [found, isWritable] = await Promise.all([getJson("/security", {}, signal), mayWrite()]);
    fill(problems, found.has_authorizer ? null : notice("This broker has no authorizer: every client may do everything. Set authorizer.class.name to change that.", "info"), found.problems.map((each) => notice(each)));
    if (acls.classList.contains("skeleton")) {
      acls.className = "card";
      fill(acls, h("div", { class: "head" }, h("h2", null, "ACLs"), h("div", { class: "end" }, field("Search", search), isWritable && found.has_authorizer ? button("create-rule", "Create rule", () => openRule(refresh)) : null)), rules);
    }
    drawRules();
    fill(users, heading("SCRAM users", isWritable && button("set-user", "Set user", () => openUser({ user: "" }, refresh))), table("", [
      { title: "User", className: "name", of: (row) => row.user },
      { title: "Credentials", of: (row) => row.credentials.map((each) => h("div", null, each, isWritable ? [" ", quiet(`Delete ${each} of ${row.user}`, "Delete", () => deleteUser(row.user, each, refresh))] : null)) },
    ], found.users, { none: ["No users", "Create one here if console.write.enable is true, or with kafka-configs --entity-type users."] }));
    fill(quotas, heading("Quotas", isWritable && button("set-quotas", "Set quotas", () => openQuotas({ entity: {}, quotas: {} }, refresh))), table("", [
      { title: "Entity", of: (row) => Object.entries(row.entity).map(([type, name]) => h("div", null, `${type}: ${name}`)) },
      { title: "Quotas", of: (row) => Object.entries(row.quotas).map(([name, value]) => h("div", null, `${name}: ${count(value)}`)) },
      ...(isWritable ? [{ title: "", of: (row) => quiet(`Change quotas of ${Object.values(row.entity).join(", ")}`, "Change", () => openQuotas(row, refresh)) }] : []),
    ], found.quotas, { none: ["No quotas", "Set them here if console.write.enable is true, or with kafka-configs --entity-type users or clients."] }));
  }

  return {
    title: "Security",
    root: h("div", null, h("div", { class: "head" }, h("h1", null, "Security")), problems, question(), acls, h("div", { class: "grid" }, users, quotas)),
    refresh,
  };
}

function heading(title, action) {
  return h("div", { class: "head" }, h("h2", null, title), h("div", { class: "end" }, action));
}

function button(id, title, click) {
  return h("button", { type: "button", id, click }, title);
}

function quiet(label, text, click) {
  return h("button", { type: "button", class: "quiet", "data-key": label, "aria-label": label, click }, text);
}

function aclTable(rows, caption, remove) {
  return table(caption, [
    { title: "Resource", className: "name", of: (row) => [`${row.resource_type}: `, LINKED[row.resource_type] && row.pattern === "LITERAL" && row.resource !== "*" ? h("a", { href: LINKED[row.resource_type](row.resource) }, row.resource) : row.resource] },
    { title: "Pattern", of: (row) => row.pattern.toLowerCase() },
    { title: "Principal", of: (row) => row.principal },
    { title: "Host", of: (row) => row.host },
    { title: "Operation", of: (row) => row.operation },
    { title: "Permission", of: (row) => tag(row.permission, row.permission === "Allow" ? "good" : "bad") },
    ...(remove ? [{ title: "", of: (row) => quiet(`Delete the rule ${Object.values(row).join(" ")}`, "Delete", () => remove(row)) }] : []),
  ], rows, { none: ["No rules", "Rules appear when this page or kafka-acls adds them."] });
}

const LINKED = { Topic: (name) => link`topics/${name}`, Group: (name) => link`groups/${name}` };

function changeRule(action, row, done) {
  openChange("Delete a rule", () => "/security/acls", { body: () => ({ action, rules: [row] }), verb: "Delete", done });
}

/** The type, operation and name of a resource, of which the operations depend on the type. */
function resourceFields(prefix) {
  const type = select(`${prefix}resource-type`, Object.keys(RESOURCES).map((each) => [each, each.toLowerCase().replaceAll("_", " ")]), "TOPIC");
  const operation = h("select", { id: `${prefix}operation` });
  const resource = h("input", { id: `${prefix}resource`, type: "text", required: true, autocomplete: "off", spellcheck: "false" });
  const show = () => {
    fill(operation, RESOURCES[type.value].map((each) => h("option", { value: each }, each.toLowerCase().replaceAll("_", " "))));
    if (type.value === "CLUSTER") resource.value = "kafka-cluster";
  };
  type.addEventListener("change", show);
  show();
  return { type, operation, resource };
}

function openRule(done) {
  const { type, operation, resource } = resourceFields("rule-");
  operation.append(h("option", { value: "ALL" }, "all"));
  type.addEventListener("change", () => operation.append(h("option", { value: "ALL" }, "all")));
  const permission = select("rule-permission", [["ALLOW", "allow"], ["DENY", "deny"]], "ALLOW");
  const principal = h("input", { id: "rule-principal", type: "text", value: "User:", required: true });
  const host = h("input", { id: "rule-host", type: "text", value: "*", required: true });
  const pattern = select("rule-pattern", [["LITERAL", "exactly this name, or * for all"], ["PREFIXED", "every name with this prefix"]], "LITERAL");
  openChange("Create a rule", () => "/security/acls", {
    fields: [field("Permission", permission), field("Principal", principal), field("Host", host), field("Resource", type), field("Operation", operation), field("Name", resource), field("Pattern", pattern)],
    body: () => ({ action: "create", rules: [{ resource_type: type.value, resource: resource.value, pattern: pattern.value, principal: principal.value, host: host.value, operation: operation.value, permission: permission.value }] }),
    verb: "Create", done,
  });
}

function openUser(row, done) {
  const user = h("input", { id: "user", type: "text", value: row.user, required: true, autocomplete: "off" });
  const mechanism = select("mechanism", ["SCRAM-SHA-256", "SCRAM-SHA-512"].map((each) => [each, each]), "SCRAM-SHA-256");
  const iterations = h("input", { id: "iterations", type: "number", min: 4096, max: 16384, value: 4096 });
  const password = h("input", { id: "password", type: "password", required: true, autocomplete: "new-password" });
  openChange("Set a SCRAM user", () => "/security/users", {
    fields: [field("User", user), field("Mechanism", mechanism), field("Iterations", iterations), field("Password", password)],
    body: () => ({ action: "set", user: user.value, mechanism: mechanism.value, iterations: Number(iterations.value), password: password.value }),
    verb: "Set", done,
  });
}

function deleteUser(user, credential, done) {
  openChange(`Delete a credential of ${user}`, () => "/security/users", {
    body: () => ({ action: "delete", user, mechanism: credential.split(",")[0], iterations: 0, password: "" }), verb: "Delete", done,
  });
}

/** Sets quotas of users and clients, or of addresses. An empty field leaves out a name, and removes a quota that exists. */
function openQuotas(row, done) {
  const names = Object.fromEntries(["user", "client-id", "ip"].map((type) => [type, h("input", { id: `quota-${type}`, type: "text", value: row.entity[type] ?? "", placeholder: `name, or ${DEFAULT}`, autocomplete: "off" })]));
  const values = Object.fromEntries([...QUOTAS.user, ...QUOTAS.ip].map((key) => [key, h("input", { id: key, type: "number", min: 0, step: "any", value: row.quotas[key] ?? "" })]));
  openChange("Set quotas", () => "/security/quotas", {
    fields: [...Object.entries(names).map(([type, input]) => field(type, input)), ...Object.entries(values).map(([key, input]) => field(key, input))],
    body() {
      const changed = Object.entries(values).filter(([key, input]) => input.value !== String(row.quotas[key] ?? ""));
      if (!changed.length) throw new Error("No quota differs from what is set.");
      return {
        entity: Object.fromEntries(Object.entries(names).filter(([, input]) => input.value).map(([type, input]) => [type, input.value === DEFAULT ? null : input.value])),
        quotas: Object.fromEntries(changed.map(([key, input]) => [key, input.value === "" ? null : Number(input.value)])),
      };
    },
    verb: "Set", done,
  });
}

function question() {
  const principal = h("input", { id: "principal", type: "text", value: "User:", required: true });
  const host = h("input", { id: "host", type: "text", value: "127.0.0.1" });
  const { type, operation, resource } = resourceFields("");
  const result = h("div", { id: "verdict", role: "status" });
  async function ask(event) {
    event.preventDefault();
    try {
      const verdict = await getJson("/security/may", { principal: principal.value, host: host.value, operation: operation.value, resource_type: type.value, resource: resource.value });
      fill(result, h("p", null, tag(verdict.is_allowed ? "allowed" : "denied", verdict.is_allowed ? "good" : "bad"), ` ${verdict.reason}`), verdict.rules.length ? aclTable(verdict.rules, "Rules that concern it", null) : null);
    } catch (error) {
      fill(result, notice(error.message, "bad"));
    }
  }
  return h("section", { class: "card" }, h("h2", null, "May this principal do that?"),
    h("form", { class: "form", submit: ask }, field("Principal", principal), field("Host", host), field("Operation", operation), field("Resource", type), field("Name", resource), h("button", { type: "submit", class: "primary", id: "ask" }, "Ask")), result);
}
