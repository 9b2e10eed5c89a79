"use strict";
(() => {
  const form = document.getElementById("filters");
  if (!form) return;
  const cards = [...document.querySelectorAll("article.entry")].map((card) => ({
    card,
    arms: [...card.querySelectorAll(".arm")],
    teachers: card.dataset.teachers === undefined ? null : card.dataset.teachers.split(" "),
    text: null,
  }));
  const value = (name) => (form.elements[name] ? form.elements[name].value : "");
  const taught = (arm, teacher) => {
    const teachers = arm.dataset.teachers;
    return teachers === undefined || teachers.split(" ").includes(teacher);
  };

  function apply() {
    const boxes = [...form.querySelectorAll("input[name=arm]")];
    const shown = new Set(boxes.filter((box) => box.checked).map((box) => box.value));
    const all = boxes.length === 0;
    const [verdict, of, kind, domain] = ["verdict", "of", "kind", "domain"].map(value);
    const [difficulty, teacher] = ["difficulty", "teacher"].map(value);
    const words = value("words").trim().toLowerCase();
    let count = 0;
    for (const entry of cards) {
      const data = entry.card.dataset;
      const visible = entry.arms.filter((arm) => {
        const show = (all || shown.has(arm.dataset.arm)) && (!teacher || taught(arm, teacher));
        arm.hidden = !show;
        return show;
      });
      const judged = of === "" ? visible : entry.arms.filter((arm) => arm.dataset.arm === of);
      if (words && entry.text === null) entry.text = entry.card.textContent.toLowerCase();
      const fits =
        (verdict === "" || judged.some((arm) => arm.dataset.verdict === verdict)) &&
        (kind === "" || data.kind === kind) &&
        (domain === "" || data.domain === domain) &&
        (difficulty === "" || data.difficulty === difficulty) &&
        (teacher === "" || entry.teachers === null || entry.teachers.includes(teacher)) &&
        (words === "" || entry.text.includes(words));
      entry.card.hidden = !fits;
      count += fits ? 1 : 0;
    }
    const total = `${cards.length.toLocaleString("en")} question${cards.length === 1 ? "" : "s"}`;
    document.getElementById("found").textContent =
      count === cards.length ? total : `${count.toLocaleString("en")} of ${total}`;
    document.getElementById("nothing").hidden = count > 0;
  }

  form.addEventListener("input", apply);
  form.addEventListener("submit", (event) => event.preventDefault());
  form.addEventListener("reset", () => setTimeout(apply));
  form.hidden = false;
  apply();
})();
