// The list of groups.

import { fromAddress, link, toAddress } from "./address.js";
import { getJson } from "./api.js";
import { field, fill, h, notice, searchInput, tag } from "./dom.js";
import { count, plural } from "./format.js";
import { pager, table } from "./table.js";

const LIMIT = 50;
const DEFAULTS = { search: "", sort: "group", order: "ascending", offset: 0 };
/** Columns whose greatest values come first when they are chosen. */
const DESCENDING = ["members", "topics", "lag", "status"];
const STATUS = { OK: "good", WARN: "warn", STALL: "bad", STOP: "bad" };

export function groupsPage() {
  const query = fromAddress(DEFAULTS);
  const list = h("div", { class: "card skeleton" });
  const problems = h("div", null);
  const search = searchInput(query.search, change);

  function change(parts) {
    Object.assign(query, parts);
    toAddress(query, DEFAULTS);
    draw().catch((error) => fill(problems, notice(error.message, "bad")));
  }

  const sorted = {
    get key() { return query.sort; },
    get order() { return query.order; },
    by(key) {
      const isDescending = query.sort === key ? query.order === "ascending" : DESCENDING.includes(key);
      change({ sort: key, order: isDescending ? "descending" : "ascending", offset: 0 });
    },
  };

  async function draw(signal) {
    const asked = JSON.stringify(query);
    const page = await getJson("/groups", { ...query, limit: LIMIT }, signal);
    if (asked !== JSON.stringify(query)) return;
    list.className = "card";
    fill(problems, page.unavailable.map((each) => notice(`Broker ${each.broker} did not respond: ${each.reason}. The groups that it coordinates are missing.`)));
    fill(list,
      table(`${plural(page.total, "group")}`, [
        { title: "Group", sort: "group", className: "name", of: (row) => h("a", { href: link`groups/${row.group}` }, row.group) },
        { title: "Status", sort: "status", of: (row) => statusTag(row.status) },
        { title: "Lag", sort: "lag", number: true, of: (row) => count(row.lag) },
        { title: "State", sort: "state", of: (row) => stateTag(row.state) },
        { title: "Protocol", sort: "protocol_type", of: (row) => row.protocol_type || "–" },
        { title: "Coordinator", sort: "coordinator", number: true, of: (row) => h("a", { href: link`brokers/${row.coordinator}` }, row.coordinator) },
        { title: "Members", sort: "members", number: true, of: (row) => count(row.members) },
        { title: "Topics", sort: "topics", number: true, of: (row) => count(row.topics) },
      ], page.groups, { sorted, onRow: (row) => (location.hash = link`groups/${row.group}`), none: query.search ? ["No group matches", "Search for another part of the name."] : ["No groups", "Groups appear when a consumer joins one or commits offsets."] }),
      page.total > LIMIT ? pager(query.offset, LIMIT, page.total, (offset) => change({ offset })) : null);
  }

  return {
    title: "Groups",
    root: h("div", null, h("div", { class: "head" }, h("h1", null, "Groups")), h("div", { class: "form" }, field("Search", search, "wide")), problems, list),
    refresh: draw,
  };
}

export function stateTag(state) {
  return tag(state, { Stable: "good", Empty: "", Dead: "bad" }[state] ?? "warn");
}

export function statusTag(status) {
  return status === "NONE" ? h("span", { class: "muted" }, "no commits") : tag(status, STATUS[status]);
}
