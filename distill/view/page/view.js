"use strict";
const SIZE = 50, HEADINGS = { fate: "result", rule: "dropped by", label: "your label" };
let state = {}, found = { rows: [], total: 0, facets: {} }, shown = null, asked = 0;
let ahead = { id: null };  // the next trace with its pictures, asked for while a person reads

// --- what is asked lives in the address, so that it can be kept and shared ------------------------------------------

function wanted() { return new URLSearchParams(location.hash.slice(1)); }

function ask(change) {
  const parameters = wanted();
  for (const [name, value] of Object.entries(change)) value ? parameters.set(name, value) : parameters.delete(name);
  if (!("offset" in change) && !("id" in change)) { parameters.delete("offset"); parameters.delete("id"); }
  history.replaceState(null, "", `#${parameters}`);
  return "id" in change && Object.keys(change).length === 1 ? show() : search();
}

function toggle(facet, value) {
  const parameters = wanted(), values = new Set(parameters.getAll(facet));
  values.has(value) ? values.delete(value) : values.add(value);
  parameters.delete(facet);
  for (const one of values) parameters.append(facet, one);
  parameters.delete("offset");
  parameters.delete("id");
  history.replaceState(null, "", `#${parameters}`);
  return search();
}

async function search() {
  const parameters = wanted(), turn = ++asked;
  ahead = { id: null };
  parameters.delete("id");
  parameters.set("limit", SIZE);
  try {
    const answer = await call(`/api/traces?${parameters}`);
    if (turn !== asked) return;
    found = answer;
    byId("problem").textContent = state.labelling_off || "";
  } catch (problem) {
    if (turn === asked) byId("problem").textContent = problem.message;
    return;
  }
  drawFacets();
  drawRows();
  if (!wanted().get("id") && found.rows.length) ask({ id: found.rows[0].id });
  else await show();
}

const blind = () => byId("blind").checked;
const hidden = (row) => blind() && !row.label;

function drawFacets() {
  const parameters = wanted();
  byId("facets").replaceChildren(...Object.entries(found.facets).flatMap(([facet, values]) => {
    if (!values.length || (blind() && ["answer_verdict", "fate", "rule", "arithmetic", "difficulty"].includes(facet))) return [];
    const chosen = parameters.getAll(facet);
    return [make("h2", {}, HEADINGS[facet] || facet.replace("_", " ")), ...values.map(([value, count]) => make("button",
      { type: "button", "aria-pressed": chosen.includes(value), onclick: () => toggle(facet, value) },
      make("span", {}, value), make("span", {}, count.toLocaleString("en"))))];
  }));
}

function drawRows() {
  const current = wanted().get("id"), offset = Number(wanted().get("offset") || 0);
  byId("total").textContent = counted(found.total, "trace");
  byId("rows").replaceChildren(...found.rows.map((row) => make("li", {}, make("button",
    { type: "button", "data-id": row.id, "aria-current": row.id === current, onclick: () => ask({ id: row.id }) },
    make("span", { class: "question" }, row.question || row.id),
    make("small", {}, [row.teacher, ...(hidden(row) ? [] : [row.fate, row.answer_verdict]), row.label && `you: ${row.label}`]
      .filter(Boolean).join(" · "))))));
  const last = Math.min(offset + found.rows.length, found.total);
  byId("range").textContent = found.total ? `${(offset + 1).toLocaleString("en")} to ${last.toLocaleString("en")}` : "none";
  byId("back").disabled = offset === 0;
  byId("next").disabled = last >= found.total;
}

// --- one trace --------------------------------------------------------------------------------------------------------

async function show() {
  const id = wanted().get("id");
  for (const button of byId("rows").querySelectorAll("button")) {
    const current = button.dataset.id === id;
    button.setAttribute("aria-current", current);
    if (current) button.scrollIntoView({ block: "nearest" });
  }
  if (!id) return;
  if (shown && shown.id !== id) shown = null;  // a key pressed before the new trace is there labels nothing
  try {
    const trace = await (ahead.id === id ? ahead : loaded(id)).trace;
    if (wanted().get("id") !== id) return;
    shown = trace;
    drawTrace();
    const next = found.rows[found.rows.findIndex((row) => row.id === id) + 1];
    if (next && ahead.id !== next.id) ahead = loaded(next.id);
  } catch (problem) {
    ahead = { id: null };
    byId("problem").textContent = problem.message;
  }
}

function loaded(id) {
  const trace = call(`/api/traces/${encodeURIComponent(id)}`).then((facts) => {
    facts.pictures = Array.from({ length: facts.images }, (_, index) => picture(facts.sample_id, index));
    return facts;
  });
  trace.catch(() => null);  // told when the trace is to be shown
  return { id, trace };
}

function rationale() {
  const pieces = [];
  let end = 0;
  const letters = Array.from(shown.reasoning);  // marks count characters, as Python does
  for (const mark of blind() && !shown.label ? [] : shown.marks) {
    pieces.push(letters.slice(end, mark.start).join(""));
    pieces.push(make("mark", { class: mark.kind, title: `${mark.kind}: ${mark.note}` }, letters.slice(mark.start, mark.end).join(""),
      mark.kind === "supported" ? "" : make("small", {}, ` [${mark.kind}: ${mark.note}]`)));
    end = mark.end;
  }
  return make("div", { class: "rationale", dir: "auto" }, ...pieces, letters.slice(end).join("") || (end ? "" : "no rationale"));
}

function legend() {
  const kinds = { supported: "the chart's table has this number", unsupported: "the table does not have it", slip: "wrong arithmetic" };
  return make("p", { class: "hint" }, ...Object.keys(kinds).filter((kind) => shown.marks.some((mark) => mark.kind === kind))
    .flatMap((kind, index) => [index ? ", " : "", make("mark", { class: kind }, kind), `: ${kinds[kind]}`]));
}

// The other traces of the question with their texts, beside each other; of many, the rest are buttons.
function siblings() {
  const open = (one) => make("button", { type: "button", onclick: () => ask({ id: one.id }) }, one.id.slice(0, 12));
  const section = (one) => make("section", { "aria-label": `Trace ${one.id.slice(0, 12)}` }, make("h3", {}, one.teacher, " ", open(one)),
    make("p", { class: "soft" }, one.fate), make("p", { dir: "auto" }, "answer ", make("b", {}, one.answer || "none")),
    make("div", { class: "rationale", dir: "auto" }, one.text || "no rationale"));
  return make("div", { class: "replies" }, ...shown.siblings.map((one) => "text" in one ? section(one) : open(one)));
}

function drawTrace() {
  const open = !blind() || shown.label;
  const rules = shown.rules.map((one) => [one.rule, make("b", { class: one.drops ? "bad whole" : "good whole" }, one.drops ? "drops it" : "passed"),
    make("span", {}, make("code", {}, one.condition), make("small", { class: "soft" }, Object.entries(one.values).map(([name, what]) => `${name} = ${what === null ? "no value" : value(what)}`).join(", ")))]);
  byId("trace").replaceChildren(...[
    make("h2", {}, shown.question || "question not known"),
    make("div", { class: "pictures" }, ...shown.pictures),
    table([["gold", shown.gold.join(" | ") || "none"], ["answer", shown.answer || "none"],
      ...(open ? [["result", [shown.fate, ...shown.rows, ...(shown.arms.length ? [`in the comparison arms ${shown.arms.join(", ")}`] : [])].join("; ")],
        ...(shown.student.length ? [["student", shown.student.join("; ")]] : [])] : [])]),
    labelButtons(),
    make("h2", {}, "Rationale"), rationale(), ...(open && shown.marks.length ? [legend()] : []),
    shown.text ? make("div", { class: "rationale" }, shown.text) : null,
    ...(open && rules.length ? [make("h2", {}, "Rules"), make("div", { class: "rules" }, table(rules))] : []),
    ...(open && shown.siblings.length ? [make("h2", {}, "Other traces of the question"), siblings()] : []),
    ...(shown.images === 1 ? [make("h2", {}, "Replies of the models"), askForm(), replies()] : []),
    ...(open && shown.twins.length ? [make("h2", {}, "Traces that say the same"), table(shown.twins.map((one) =>
      [one.preferred ? "preferred" : "repeats", value(one.similarity), make("button", { type: "button", onclick: () => ask({ id: one.id }) }, one.id.slice(0, 12))]))] : []),
    ...(open ? shown.lines.flatMap(([title, text]) => [make("h2", {}, title), make("div", { class: "rationale", dir: "auto" }, text)]) : []),
    ...(open && shown.families.length ? [make("h2", {}, "Signals"), table(shown.families.flatMap((family) =>
      Object.entries(family.values).filter(([, what]) => what !== null).map(([name, what]) => [make("span", { title: state.descriptions[name] || null }, name), value(what)])))] : []),
    make("h2", {}, "Request"),
    table([["trace", make("code", {}, shown.id)], ["sample", make("code", {}, shown.sample_id)], ["teacher", `${shown.teacher}, attempt ${shown.k}, ${shown.model}`],
      ["outcome", [shown.outcome, shown.finish_reason && `finish reason ${shown.finish_reason}`, shown.error].filter(Boolean).join("; ")],
      ["tokens", Object.entries(shown.usage).map(([name, count]) => `${name} ${count ?? "not known"}`).join(", ")],
      ["settings", Object.entries(shown.params).map(([name, what]) => `${name} ${what}`).join(", ") || "none kept"]])].filter((part) => part !== null));
}

// --- the models of the run, asked about the picture --------------------------------------------------------------------------

const told = new Map();  // replies by sample; each a map of model name to what it wrote

function replies() {
  const said = told.get(shown.sample_id) || new Map();
  return make("div", { id: "said", class: "replies", "aria-live": "polite" }, ...[...said.entries()].map(([name, one]) => make("section", { "aria-label": name },
    make("h3", {}, name, " ", make("small", {}, one.note)), one.answer ? make("p", { dir: "auto" }, make("b", {}, one.answer)) : null,
    make("div", { class: one.failed ? "rationale bad" : "rationale", dir: "auto" }, one.text))));
}

function askForm() {
  const question = make("textarea", { "aria-label": "Question to the models", name: "question" });
  question.value = shown.question;
  const teachers = make("input", { type: "checkbox", name: "teachers" });
  const form = make("form", { class: "asking" }, question, make("label", {}, teachers, " teachers too"), make("button", { type: "submit" }, "Ask the student before and after training"));
  form.addEventListener("submit", (event) => { event.preventDefault(); askModels(shown.sample_id, question.value, teachers.checked); });
  return form;
}

async function askModels(sample, question, teachers) {
  const said = new Map([["models", { note: "loading", text: "" }]]), draw = () => {
    const place = byId("said");
    if (shown && shown.sample_id === sample && place) place.replaceWith(replies());
  };
  told.set(sample, said);
  draw();
  const hear = (line) => {
    said.delete("models");
    if (line.error) said.set("models", { note: "not asked", text: line.error, failed: true });
    else if (!line.reply) said.set(line.name, { note: `${line.model}, writes`, text: line.text });
    else if (line.reply.not_asked) said.set(line.reply.name, { note: `${line.reply.model}, not asked`, text: line.reply.not_asked, failed: true });
    else said.set(line.reply.name, { note: `${line.reply.model}, ${line.reply.seconds.toFixed(1)} s${line.reply.truncated ? ", cut off" : ""}`, answer: line.reply.answer, text: line.reply.rationale || "no rationale" });
    draw();
  };
  try {
    const response = await fetch("/api/ask", { method: "POST", body: JSON.stringify({ sample_id: sample, question, teachers }) });
    if (!response.ok) return hear({ error: (await response.json()).error });
    const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
    let rest = "";
    for (let piece = await reader.read(); !piece.done; piece = await reader.read()) {
      const lines = (rest + piece.value).split("\n");
      rest = lines.pop();
      lines.filter(Boolean).forEach((line) => hear(JSON.parse(line)));
    }
  } catch (problem) { hear({ error: problem.message }); }
}

function move(by) {
  const index = found.rows.findIndex((row) => row.id === wanted().get("id")), next = index + by;
  if (found.rows[next]) return ask({ id: found.rows[next].id });
  const offset = Number(wanted().get("offset") || 0);
  if (by > 0 && offset + SIZE < found.total) return ask({ offset: String(offset + SIZE), id: "" });
  if (by < 0 && offset > 0) return ask({ offset: String(Math.max(0, offset - SIZE)), id: "" });
}

// --- policy bench ---------------------------------------------------------------------------------------------------------

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
      const slider = make("input", { type: "range", min: Math.min(low, number), max: Math.max(high, number), step: (high - low) / 200 >= 1 ? 1 : (high - low) / 200,
        "aria-label": `Threshold of rule ${rule.name}` });
      slider.value = number;
      slider.addEventListener("input", () => { rule.drop = drop.value = `${column} ${operator} ${Number(Number(slider.value).toPrecision(4))}`; soon(); });
      parts.push(slider);
    }
    return make("div", { class: "rule" }, ...parts, make("button", { type: "button", onclick: () => { rules.splice(index, 1); drawRules(); soon(); } }, "Remove"));
  }));
}

function soon() { clearTimeout(waiting); waiting = setTimeout(compare, 300); }

async function compare() {
  const turn = ++benched, count = byId("per_question").value;
  let found;
  try {
    found = await call("/api/policy", { rules: rules.map(({ name, drop }) => ({ name, drop })), per_question: count ? Number(count) : null });
  } catch (problem) {
    if (turn === benched) byId("effect").replaceChildren(make("p", { class: "bad" }, problem.message));
    return;
  }
  if (turn !== benched) return;
  const change = (before, now) => [before.toLocaleString("en"), now.toLocaleString("en"), `${now === before ? "" : now > before ? "+" : "\u2212"}${Math.abs(now - before).toLocaleString("en")}`];
  const block = (heads, rows) => make("table", {}, make("tr", {}, ...heads.map((head) => make("th", { scope: "col" }, head))),
    ...rows.map(([name, ...cells]) => make("tr", {}, make("th", { scope: "row" }, name), ...cells.map((cell) => make("td", {}, cell)))));
  const total = found.total;
  byId("effect").replaceChildren(
    block(["", "in the run", "with these rules", "change"], [["kept", ...change(total.kept, total.now_kept)], ["selected", ...change(total.selected, total.now_selected)],
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
byId("add").addEventListener("click", () => { rules.push({ name: `rule_${rules.length + 1}`, drop: "false" }); drawRules(); });

document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  if (/^(INPUT|TEXTAREA|SELECT)$/.test(event.target.tagName) && event.target.type !== "checkbox") {
    if (event.key === "Escape") event.target.blur();
    if (event.key === "Enter" && event.target.id === "note" && shown) {
      event.preventDefault();
      event.target.blur();
      setLabel(shown.pending || (shown.label && shown.label.label) || "unsure", false);
    }
    return;
  }
  const actions = {
    j: () => move(1), k: () => move(-1), n: () => byId("note") && byId("note").focus(), "/": () => byId("where").focus(),
    b: () => byId("blind").click(),
    ...Object.fromEntries((state.labels || []).map((label) => [label[0], () => setLabel(label, true)])),
  };
  if (actions[event.key]) { event.preventDefault(); actions[event.key](); }
});

byId("ask").addEventListener("submit", (event) => {
  event.preventDefault();
  ask({ words: byId("words").value.trim(), where: byId("where").value.trim(), order: byId("order").value });
});
byId("order").addEventListener("change", () => ask({ order: byId("order").value }));
byId("back").addEventListener("click", () => ask({ offset: String(Math.max(0, Number(wanted().get("offset") || 0) - SIZE)), id: "" }));
byId("next").addEventListener("click", () => ask({ offset: String(Number(wanted().get("offset") || 0) + SIZE), id: "" }));
byId("blind").addEventListener("change", () => { drawFacets(); drawRows(); if (shown) drawTrace(); });

async function start() {
  state = await call("/api/state");
  document.title = `${state.run} · distill view`;
  byId("run").textContent = state.run;
  byId("write").hidden = !state.recipe;
  byId("write").textContent = `Write to ${state.recipe}`;
  const parameters = wanted();
  byId("words").value = parameters.get("words") || "";
  byId("where").value = parameters.get("where") || "";
  byId("order").replaceChildren(make("option", { value: "" }, "by id"), ...state.columns.flatMap((name) =>
    [make("option", { value: name }, `${name}, lowest first`), make("option", { value: `-${name}` }, `${name}, highest first`)]));
  byId("order").value = parameters.get("order") || "";
  await search();
  await drawAgreement();
  setInterval(async () => {  // a run that is being generated grows, and one that is filtered gets its decisions
    const now = await call("/api/state").catch(() => null);
    if (!now) return;
    const changed = now.filtered !== state.filtered || now.labelled !== state.labelled;  // another page may label too
    state = now;
    if (changed || !now.filtered) await search();
    if (changed) await drawAgreement();
  }, 5000);
}
start().catch((problem) => { byId("problem").textContent = problem.message; });
