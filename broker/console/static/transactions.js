// Open and hanging transactions.

import { link } from "./address.js";
import { getJson } from "./api.js";
import { fill, h, notice, stat, tag } from "./dom.js";
import { count, duration, time, zone } from "./format.js";
import { table } from "./table.js";

export function transactionsPage() {
  const facts = h("div", { class: "skeleton" });
  const list = h("section", { class: "card" });
  const hanging = h("section", { class: "card" });
  return {
    title: "Transactions",
    root: h("div", null, h("div", { class: "head" }, h("h1", null, "Transactions")), facts, hanging, list),
    async refresh(signal) {
      const found = await getJson("/transactions", {}, signal);
      const open = found.transactions.filter((row) => row.age_ms >= 0).length;
      facts.className = "";
      fill(facts, found.unavailable.map((each) => notice(`Broker ${each.broker} did not respond: ${each.reason}. Transactions that it coordinates are missing.`)),
        h("div", { class: "stats" }, stat("open", count(open)), stat("transactional ids", count(found.total)), stat("partitions with a hanging transaction", count(found.late_partitions), found.late_partitions ? "bad" : "good")));
      fill(hanging, h("h2", null, "Hanging transactions"), table("Open in a partition for longer than any transaction may be; read_committed consumers do not read past them. End them with kafka-transactions abort.", [
        { title: "Partition", of: (row) => [h("a", { href: link`topics/${row.topic}/partitions` }, row.topic), `-${row.partition}`] }, { title: "Producer id", of: (row) => row.producer_id },
        { title: "Since offset", number: true, of: (row) => h("a", { href: link`topics/${row.topic}/records/${row.partition}/${row.first_offset}` }, row.first_offset) }, { title: `Last write, ${zone()}`, of: (row) => time(row.last_write_ms) },
      ], found.hanging, { none: ["No hanging transactions", "No partition led by this broker has a transaction that is open for too long."] }));
      fill(list, h("h2", null, "Transactional ids"), table("Open transactions first", [
        { title: "Transactional id", of: (row) => row.transactional_id },
        { title: "State", of: (row) => [tag(row.state, row.age_ms >= 0 ? "accent" : ""), " ", row.is_late ? tag("late", "bad") : null] },
        { title: "Open for", number: true, of: (row) => (row.age_ms >= 0 ? duration(row.age_ms) : "–") },
        { title: "Timeout", number: true, of: (row) => duration(row.timeout_ms) },
        { title: "Producer", of: (row) => `${row.producer_id}, epoch ${row.producer_epoch}` },
        { title: "Coordinator", number: true, of: (row) => h("a", { href: link`brokers/${row.coordinator}` }, row.coordinator) },
        { title: "Partitions", of: (row) => row.partitions.map((each) => h("div", null, h("a", { href: link`topics/${each.topic}` }, each.topic), `: ${each.partitions.join(", ")}`)) },
      ], found.transactions, { none: ["No transactions", "No transactional producer was seen."] }));
    },
  };
}
