"use strict";
// The policy bench: other rules, and what they would keep.

let rules = [], benched = 0, waiting = null;

async function openBench() {
  const policy = byId("policy"), open = policy.hidden;
  policy.hidden = !open;
  byId("bench").setAttribute("aria-expanded", open);
  if (open && !rules.length) await resetBench();
}

async function resetBench() {
  try {
    const own = await call("/api/policy");
    rules = own.rules;
    byId("per_question").value = own.per_question ?? "";
    drawRules();
    await compare();
  } catch (problem) { byId("effect").replaceChildren(make("p", { class: "bad" }, problem.message)); }
}

function drawRules() {
  byId("rules").replaceChildren(...rules.map((rule, index) => {
    const field = (name, label) => {
      const input = make("input", { name, "aria-label": `${label} of rule ${index + 1}`, spellcheck: "false" });
      input.value = rule[name];
      input.addEventListener("input", () => { rule[name] = input.value; soon(); });
      return input;
    };
    const drop = field("drop", "Condition"), parts = [field("name", "Name"), drop];
    if (rule.threshold && rule.threshold.high > rule.threshold.low) {
      const { column, operator, number, low, high } = rule.threshold;
      const sign = `${column} ${operator} `, slider = make("input", { type: "range", min: Math.min(low, number), max: Math.max(high, number), step: (high - low) / 200 >= 1 ? 1 : (high - low) / 200,
        "aria-label": `Threshold of rule ${rule.name}` });
      slider.value = number;
      const follow = () => {
        const text = drop.value.startsWith(sign) ? drop.value.slice(sign.length).trim() : "", now = text ? Number(text) : NaN;
        slider.hidden = Number.isNaN(now) && drop.value !== rule.own;
        if (!Number.isNaN(now)) slider.value = now;
      };
      rule.own ??= rule.drop;
      follow();
      drop.addEventListener("input", follow);
      slider.addEventListener("input", () => { rule.drop = drop.value = sign + (slider.step === "1" ? slider.value : Number(Number(slider.value).toPrecision(4))); soon(); });
      parts.push(slider);
    }
    return make("div", { class: "rule" }, ...parts, make("button", { type: "button", onclick: () => { rules.splice(index, 1); drawRules(); soon(); } }, "Remove"));
  }));
}

function soon() {
  byId("written").replaceChildren();
  clearTimeout(waiting);
  waiting = setTimeout(compare, 300);
}

function addRule() {
  const names = new Set(rules.map((rule) => rule.name));
  let number = rules.length + 1;
  while (names.has(`rule_${number}`)) number += 1;
  rules.push({ name: `rule_${number}`, drop: "false" });
  drawRules();
  soon();
}

async function compare() {
  const turn = ++benched, count = byId("per_question").value;
  let found;
  try {
    found = await call("/api/policy", { rules: rules.map(({ name, drop }) => ({ name, drop })), per_question: count ? Number(count) : null });
  } catch (problem) {
    if (turn !== benched) return;
    byId("effect").replaceChildren(make("p", { class: "bad" }, problem.message));
    byId("lines").textContent = "";
    return;
  }
  if (turn !== benched) return;
  const change = (before, now) => [before.toLocaleString("en"), now.toLocaleString("en"), `${now === before ? "" : now > before ? "+" : "\u2212"}${Math.abs(now - before).toLocaleString("en")}`];
  const block = (heads, rows) => make("table", {}, make("tr", {}, ...heads.map((head) => make("th", { scope: "col" }, head))),
    ...rows.map(([name, ...cells]) => make("tr", {}, make("th", { scope: "row" }, name), ...cells.map((cell) => make("td", {}, cell)))));
  const total = found.total;
  byId("effect").replaceChildren(
    block(["traces", "in the run", "with these rules", "change"], [["kept", ...change(total.kept, total.now_kept)], ["selected", ...change(total.selected, total.now_selected)],
      ...Object.entries(found.groups.domain || {}).filter(() => Object.keys(found.groups.domain).length > 1)
        .map(([name, one]) => [`selected, ${name || "no domain"}`, ...change(one.selected, one.now_selected)])]),
    block(["dropped or left out by", "in the run", "with these rules", "change"], Object.entries(found.reasons).map(([name, both]) => [name, ...change(...both)])),
    block(["trace by trace", "traces", "such as"], Object.entries(found.moved).map(([name, one]) => [name, one.count.toLocaleString("en"),
      make("span", {}, ...one.ids.map((id) => make("button", { type: "button", onclick: () => ask({ id }) }, id.slice(0, 8))))])),
    ...found.notes.map((note) => make("p", { class: "warn" }, note)));
  byId("lines").textContent = found.recipe;
}

async function writePolicy() {
  const count = byId("per_question").value, said = byId("written");
  try {
    const done = await call("/api/policy/write", { rules: rules.map(({ name, drop }) => ({ name, drop })), per_question: count ? Number(count) : null });
    said.replaceChildren("Written. Next: ", make("code", {}, done.next));
  } catch (problem) { said.textContent = problem.message; }
}

byId("bench").addEventListener("click", openBench);
byId("reset").addEventListener("click", resetBench);
byId("per_question").addEventListener("input", soon);
byId("write").addEventListener("click", writePolicy);
byId("add").addEventListener("click", addRule);
