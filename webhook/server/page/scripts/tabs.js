function fillTabs(view, pod, index) {
  const json = (value) => `${printableJson(value)}\n`;
  const views = {
    Diff: { title: "What changes in the pod", text: () => pod.diff, draw: diffView },
    Patch: { title: "The JSON Patch that the API server receives", text: () => json(pod.patch) },
    YAML: { title: "The pod as admitted", text: () => `${yaml(pod.after)}\n` },
    JSON: { title: "The pod as admitted", text: () => json(pod.after) },
  };
  const list = view.querySelector("[role=tablist]");
  const panel = view.querySelector("[role=tabpanel]");
  panel.id = `panel-${index}`;
  let selected;
  const tabs = Object.keys(views).map((name, position) => {
    const tab = make("button", "", name);
    tab.type = "button";
    tab.id = `tab-${index}-${position}`;
    tab.setAttribute("role", "tab");
    tab.setAttribute("aria-controls", panel.id);
    tab.addEventListener("click", () => select(position));
    return tab;
  });
  const select = (position) => {
    selected = tabs[position];
    tabs.forEach((tab) => {
      tab.setAttribute("aria-selected", tab === selected);
      tab.tabIndex = tab === selected ? 0 : -1;
    });
    panel.setAttribute("aria-labelledby", selected.id);
    const { title, text, draw = plainView } = views[selected.textContent];
    view.querySelector(".tools span").textContent = title;
    panel.replaceChildren(draw(text()));
    panel.scrollTo(0, 0);
  };
  list.addEventListener("keydown", (event) => {
    const at = tabs.indexOf(selected);
    const to = { ArrowRight: at + 1, ArrowLeft: at - 1, Home: 0, End: -1 }[event.key];
    if (to === undefined) return;
    event.preventDefault();
    select((to + tabs.length) % tabs.length);
    selected.focus();
  });
  const copy = view.querySelector(".tools button");
  copy.addEventListener("click", async () => {
    try {
      await navigator.clipboard.writeText(views[selected.textContent].text());
      copy.textContent = "Copied";
    } catch {
      getSelection().selectAllChildren(panel);
      copy.textContent = "Selected";
    }
    setTimeout(() => { copy.textContent = "Copy"; }, 2000);
  });
  list.append(...tabs);
  select(0);
}
