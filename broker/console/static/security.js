// Users, quotas and ACLs, and whether a principal may do something.

import { getJson } from "./api.js";
import { field, fill, h, notice, select, tag } from "./dom.js";
import { count } from "./format.js";
import { table } from "./table.js";

const RESOURCES = {
  TOPIC: ["READ", "WRITE", "CREATE", "DELETE", "ALTER", "DESCRIBE", "DESCRIBE_CONFIGS", "ALTER_CONFIGS"],
  GROUP: ["READ", "DELETE", "DESCRIBE"],
  CLUSTER: ["CREATE", "ALTER", "DESCRIBE", "CLUSTER_ACTION", "DESCRIBE_CONFIGS", "ALTER_CONFIGS", "IDEMPOTENT_WRITE"],
  TRANSACTIONAL_ID: ["WRITE", "DESCRIBE"],
};

export function securityPage() {
  const problems = h("div", null);
  const acls = h("section", { class: "card skeleton" });
  const users = h("section", { class: "card" });
  const quotas = h("section", { class: "card" });
  return {
    title: "Security",
    root: h("div", null, h("div", { class: "head" }, h("h1", null, "Security")), problems, question(), acls, h("div", { class: "grid" }, users, quotas)),
    async refresh(signal) {
      const found = await getJson("/security", {}, signal);
      fill(problems, found.has_authorizer ? null : notice("This broker has no authorizer: every client may do everything. Set authorizer.class.name to change that.", "info"), found.problems.map((each) => notice(each)));
      acls.className = "card";
      fill(acls, h("h2", null, "ACLs"), aclTable(found.acls, `${count(found.acl_count)} rules. The console acts as ${found.principal}.`));
      fill(users, h("h2", null, "SCRAM users"), table("", [{ title: "User", of: (row) => row.user }, { title: "Credentials", of: (row) => row.credentials.map((each) => h("div", null, each)) }], found.users, { none: ["No users", "Create one with kafka-configs --entity-type users."] }));
      fill(quotas, h("h2", null, "Quotas"), table("", [
        { title: "Entity", of: (row) => Object.entries(row.entity).map(([type, name]) => h("div", null, `${type}: ${name}`)) },
        { title: "Quotas", of: (row) => Object.entries(row.quotas).map(([name, value]) => h("div", null, `${name}: ${count(value)}`)) },
      ], found.quotas, { none: ["No quotas", "Set them with kafka-configs --entity-type users or clients."] }));
    },
  };
}

function aclTable(rows, caption) {
  return table(caption, [
    { title: "Resource", of: (row) => `${row.resource_type}: ${row.resource}` },
    { title: "Pattern", of: (row) => row.pattern.toLowerCase() },
    { title: "Principal", of: (row) => row.principal },
    { title: "Host", of: (row) => row.host },
    { title: "Operation", of: (row) => row.operation },
    { title: "Permission", of: (row) => tag(row.permission, row.permission === "Allow" ? "good" : "bad") },
  ], rows, { none: ["No rules", "Rules appear when kafka-acls adds them."] });
}

function question() {
  const principal = h("input", { id: "principal", type: "text", value: "User:", required: true });
  const host = h("input", { id: "host", type: "text", value: "127.0.0.1" });
  const type = select("resource-type", Object.keys(RESOURCES).map((each) => [each, each.toLowerCase().replace("_", " ")]), "TOPIC");
  const operation = h("select", { id: "operation" });
  const resource = h("input", { id: "resource", type: "text", required: true });
  const result = h("div", { id: "verdict", role: "status" });
  const showOperations = () => {
    fill(operation, RESOURCES[type.value].map((each) => h("option", { value: each }, each.toLowerCase().replaceAll("_", " "))));
    if (type.value === "CLUSTER") resource.value = "kafka-cluster";
  };
  type.addEventListener("change", showOperations);
  showOperations();
  async function ask(event) {
    event.preventDefault();
    try {
      const verdict = await getJson("/security/may", { principal: principal.value, host: host.value, operation: operation.value, resource_type: type.value, resource: resource.value });
      fill(result, h("p", null, tag(verdict.is_allowed ? "allowed" : "denied", verdict.is_allowed ? "good" : "bad"), ` ${verdict.reason}`), verdict.rules.length ? aclTable(verdict.rules, "Rules that concern it") : null);
    } catch (error) {
      fill(result, notice(error.message, "bad"));
    }
  }
  return h("section", { class: "card" }, h("h2", null, "May this principal do that?"),
    h("form", { class: "form", submit: ask }, field("Principal", principal), field("Host", host), field("Operation", operation), field("Resource", type), field("Name", resource), h("button", { type: "submit", class: "primary", id: "ask" }, "Ask")), result);
}
