"use strict";
const SIZE = 50, LOOK_MS = 5000, READING_MS = 2000, HEADINGS = { fate: "result", rule: "dropped or left out by", label: "your label" };
const NOTHING = { rows: [], total: null, facets: {}, more: {} };
const drafts = new Map();  // texts that a person wrote and has not sent, by field and trace
const given = new Map();  // how many labels this page gave to a trace
const finders = new Map();  // the field of each facet that finds values which are not shown
let state = {}, found = NOTHING, shown = null, drawn = "", place = 0, asked = 0;
let ahead = { id: null };  // the next trace with its images, asked for while a person reads

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
  let answer = NOTHING, trouble = "";
  ahead = { id: null };
  parameters.delete("id");
  parameters.set("limit", SIZE);
  for (const [facet, field] of finders) if (field.value) parameters.set(`find.${facet}`, field.value);
  try { answer = await call(`/api/traces?${parameters}`); } catch (problem) { trouble = problem.message; }
  if (turn !== asked) return;
  found = answer;
  if (found.total && !found.rows.length) return ask({ offset: String(SIZE * Math.floor((found.total - 1) / SIZE)), id: "" });
  drawFacets();
  drawRows();
  if (trouble) clearTrace();  // what another choice has found is not shown as found by this one
  else if (!wanted().get("id") && found.rows.length) await ask({ id: found.rows[0].id });
  else await show();
  if (turn === asked && trouble) tell(trouble);
}

function tell(problem) { byId("problem").textContent = problem || state.labelling_off || ""; }

const blind = () => byId("blind").checked;
const hidden = (row) => blind() && !row.label;

function drawFacets() {
  const parameters = wanted(), active = document.activeElement, { facet: of, value: name } = active.dataset;
  byId("facets").replaceChildren(...Object.entries(found.facets).flatMap(([facet, values]) => {
    const chosen = parameters.getAll(facet), more = found.more[facet], text = finders.has(facet) && finders.get(facet).value;
    values = [...values, ...chosen.filter((one) => values.every(([value]) => value !== one)).map((one) => [one, 0])];
    if (!(values.length || text) || (blind() && ["answer_verdict", "fate", "rule", "arithmetic", "difficulty"].includes(facet))) return [];
    return [make("h2", {}, heading(facet)), ...values.map(([value, count]) => make("button",
      { type: "button", "data-facet": facet, "data-value": value, "aria-pressed": chosen.includes(value), onclick: () => toggle(facet, value) },
      make("span", {}, value || "(none)"), make("span", {}, count.toLocaleString("en")))),
      ...(more || text ? [make("p", { class: "find" }, make("span", { role: "status" },
        more ? `${more.toLocaleString("en")} more` : values.length ? "no more" : "none has"), finder(facet))] : [])];
  }));
  // What had the focus has it again.
  const again = of ? [...byId("facets").querySelectorAll("button")].find(({ dataset }) => dataset.facet === of && dataset.value === name) : active;
  if (again && byId("facets").contains(again)) again.focus({ preventScroll: true });
}

const heading = (facet) => HEADINGS[facet] || facet.replace("_", " ");

function finder(facet) {
  if (!finders.has(facet)) {
    const field = make("input", { type: "search", placeholder: "find a value", "aria-label": `Find a value of ${heading(facet)}`, autocomplete: "off" });
    field.addEventListener("input", search);
    finders.set(facet, field);
  }
  return finders.get(facet);
}

function drawRows() {
  const current = wanted().get("id"), offset = Number(wanted().get("offset") || 0);
  const replaced = found.replaced ? `, ${counted(found.replaced, "replaced attempt")}` : "";
  byId("total").textContent = found.total === null ? "" : counted(found.total - found.replaced, "trace") + replaced + (state.unread ? " so far; more are being read" : "");
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
  const index = found.rows.findIndex((row) => row.id === id);
  if (index >= 0) place = index;
  if (!id) return clearTrace();
  if (shown && shown.id !== id) shown = null;  // a key pressed before the new trace is there labels nothing
  const before = given.get(id);
  try {
    const trace = await (ahead.id === id ? ahead : loaded(id)).trace;
    if (wanted().get("id") !== id) return;
    if (given.get(id) !== before) return show();  // it may have been read before the label
    tell(early === id ? TOO_EARLY : "");
    if (shown && shown.images === trace.images) trace.pictures = shown.pictures;  // an open one stays open
    if (JSON.stringify([trace, blind()]) === drawn) shown ??= trace;
    else {
      shown = trace;
      drawTrace();
    }
    const next = found.rows[found.rows.findIndex((row) => row.id === id) + 1];
    if (next && ahead.id !== next.id) ahead = loaded(next.id);
  } catch (problem) {
    ahead = { id: null };
    if (wanted().get("id") !== id) return;
    clearTrace();
    tell(problem.message);
  }
}

function clearTrace() {
  shown = null;
  drawn = "";
  byId("trace").replaceChildren(make("p", { class: "hint" }, "No trace is shown."));
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
  const open = !blind() || shown.label, active = document.activeElement, name = byId("trace").contains(active) && byId("trace").dataset.id === shown.id && active.name;
  if (open) verdictsSeen.add(shown.id);
  drawn = JSON.stringify([shown, blind()]);
  byId("trace").dataset.id = shown.id;
  const rules = shown.rules.map((one) => [one.rule, make("b", { class: one.drops ? "bad whole" : "good whole" }, one.drops ? "drops it" : "passed"),
    make("span", {}, make("code", {}, one.condition), make("small", { class: "soft" }, Object.entries(one.values).map(([name, what]) => `${name} = ${what === null ? "no value" : value(what)}`).join(", ")))]);
  byId("trace").replaceChildren(...[
    make("h2", {}, shown.question || "question not known"),
    make("div", { class: "pictures" }, ...shown.pictures),
    table([["gold", shown.gold.join(" | ") || "none"], ["answer", shown.answer || "none"],
      ...(open ? [["result", [shown.fate, ...shown.rows, ...(shown.arms.length ? [`also in the sets to compare with: ${shown.arms.join(", ")}`] : [])].join("; ")],
        ...(shown.student.length ? [["student", shown.student.join("; ")]] : [])] : [])]),
    labelButtons(),
    make("h2", {}, "Rationale"), rationale(), ...(open && shown.marks.length ? [legend()] : []),
    shown.text ? make("div", { class: "rationale" }, shown.text) : null,
    ...(open && rules.length ? [make("h2", {}, "Rules"), make("div", { class: "rules" }, table(rules))] : []),
    ...(open && shown.siblings.length ? [make("h2", {}, "Other traces of the question"), siblings()] : []),
    ...(shown.images === 1 ? [make("h2", {}, "Replies of the models"), askForm(), replies()] : []),
    ...(open && shown.twins.length ? [make("h2", {}, "Near duplicates"), table(shown.twins.map((one) =>
      [one.preferred ? "preferred" : "repeats", value(one.similarity), make("button", { type: "button", onclick: () => ask({ id: one.id }) }, one.id.slice(0, 12))]))] : []),
    ...(open ? shown.lines.flatMap(([title, text]) => [make("h2", {}, title), make("div", { class: "rationale", dir: "auto" }, text)]) : []),
    ...(open && shown.families.length ? [make("h2", {}, "Signals"), table(shown.families.flatMap((family) =>
      Object.entries(family.values).filter(([, what]) => what !== null).map(([name, what]) => [make("span", { title: state.descriptions[name] || null }, name), value(what)])))] : []),
    make("h2", {}, "Request"),
    table([["trace", make("code", {}, shown.id)], ["sample", make("code", {}, shown.sample_id)], ["teacher", `${shown.teacher}, k = ${shown.k}, ${shown.model}`],
      ["outcome", [shown.outcome, shown.finish_reason && `finish reason ${shown.finish_reason}`, shown.error].filter(Boolean).join("; ")],
      ["tokens", Object.entries(shown.usage).map(([name, count]) => `${name} ${count ?? "not known"}`).join(", ")],
      ["settings", Object.entries(shown.params).map(([name, what]) => `${name} ${what}`).join(", ") || "none kept"]])].filter((part) => part !== null));
  const field = name && byId("trace").querySelector(`[name="${name}"]`);
  if (!field) return;
  field.focus({ preventScroll: true });
  if (field.type === "textarea") field.setSelectionRange(active.selectionStart, active.selectionEnd);
}

// --- the models of the run, asked about the image --------------------------------------------------------------------------

const told = new Map();  // replies by sample; each a map of model name to what it wrote

function replies() {
  const said = told.get(shown.sample_id) || new Map();
  return make("div", { id: "said", class: "replies", "aria-live": "polite" }, ...[...said.entries()].map(([name, one]) => make("section", { "aria-label": name },
    make("h3", {}, name, " ", make("small", {}, one.note)), one.answer ? make("p", { dir: "auto" }, make("b", {}, one.answer)) : null,
    make("div", { class: one.failed ? "rationale bad" : "rationale", dir: "auto" }, one.text))));
}

function askForm() {
  const question = draft(make("textarea", { "aria-label": "Question to the models", name: "question" }), shown.sample_id, shown.question);
  const teachers = make("input", { type: "checkbox", name: "teachers" });
  const form = make("form", { class: "asking" }, question, make("label", {}, teachers, " teachers too"), make("button", { type: "submit" }, "Ask the student before and after training"));
  form.addEventListener("submit", (event) => { event.preventDefault(); askModels(shown.sample_id, question.value, teachers.checked); });
  return form;
}

let asking = false;

async function askModels(sample, question, teachers) {
  if (asking) return tell("models are being asked already; wait for their replies");
  asking = true;
  const said = new Map([["models", { note: "loading", text: "" }]]), draw = () => {
    const place = byId("said");
    if (shown && shown.sample_id === sample && place) place.replaceWith(replies());
  };
  told.set(sample, said);
  draw();
  const hear = (line) => {
    said.delete("models");
    if (line.error) said.set("models", { note: "not asked", text: line.error, failed: true });
    else if (!line.reply) said.set(line.name, { note: `${line.model}, is writing`, text: line.text });
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
  } catch (problem) { hear({ error: problem.message }); } finally { asking = false; }
}

function move(by) {
  const index = found.rows.findIndex((row) => row.id === wanted().get("id"));
  const next = index >= 0 ? index + by : place + Math.min(by, 0);  // a trace that is no longer chosen left its place to the next one
  if (found.rows[next]) return ask({ id: found.rows[next].id });
  const offset = Number(wanted().get("offset") || 0);
  if (by > 0 && offset + SIZE < found.total) return ask({ offset: String(offset + SIZE), id: "" });
  if (by < 0 && offset > 0) return ask({ offset: String(Math.max(0, offset - SIZE)), id: "" });
}

document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  if (/^(INPUT|TEXTAREA|SELECT)$/.test(event.target.tagName) && event.target.type !== "checkbox") {
    if (event.key === "Escape") event.target.blur();
    if (event.key === "Enter" && event.target.id === "note" && shown && !event.isComposing) {
      event.preventDefault();
      event.target.blur();
      setLabel(shown.pending || (shown.label && shown.label.label) || "unsure", false);
    }
    return;
  }
  const actions = {
    j: () => move(1), k: () => move(-1), n: () => byId("note") && byId("note").focus(), "/": () => byId("where").focus(),
    b: () => byId("blind").click(),
    ...Object.fromEntries((state.labels || []).map((label) => [label[0], () => event.repeat || setLabel(label, true)])),
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
window.addEventListener("hashchange", () => { readAddress(); search(); });
byId("blind").addEventListener("change", () => { drawFacets(); drawRows(); if (shown) drawTrace(); });

async function start() {
  state = await call("/api/state");
  document.title = `${state.run} · distill view`;
  byId("run").textContent = state.run;
  byId("write").hidden = !state.recipe;
  byId("write").textContent = `Write to ${state.recipe}`;
  readAddress();
  await search();
  await drawAgreement();
  lookOn();
}

// A run that is being generated grows, and one that is filtered gets its decisions. Many journals are read bit by bit.
function lookOn() { setTimeout(() => look().finally(lookOn), state.unread && !silent ? 0 : LOOK_MS); }

function readAddress() {
  const parameters = wanted();
  byId("words").value = parameters.get("words") || "";
  byId("where").value = parameters.get("where") || "";
  byId("order").replaceChildren(make("option", { value: "" }, "by id"), ...state.columns.flatMap((name) =>
    [make("option", { value: name }, `${name}, lowest first`), make("option", { value: `-${name}` }, `${name}, highest first`)]));
  byId("order").value = parameters.get("order") || "";
}

let silent = false, searched = 0;

async function look() {
  try {
    const now = await call("/api/state"), changed = String(now.version) !== String(state.version), other = String(now.columns) !== String(state.columns);
    state = now;
    if (other) readAddress();
    if (changed || silent || (!now.filtered && (!now.unread || performance.now() - searched > READING_MS))) {
      await search();
      searched = performance.now();
    }
    if (changed) await drawAgreement();
    if (changed && !byId("policy").hidden) await compare();
    silent = false;
  } catch (problem) {
    silent = true;
    tell(`The page may be out of date: ${problem.message}`);
  }
}
start().catch((problem) => { byId("problem").textContent = problem.message; });
