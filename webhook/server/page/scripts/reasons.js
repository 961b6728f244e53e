// Outcomes that differ only in the container are shown as one entry.
function reasonViews(pod) {
  const groups = new Map();
  for (const outcome of pod.outcomes) {
    const { remedy, policy, reason, changed, message } = outcome;
    const key = JSON.stringify([remedy, policy, reason, changed, message]);
    const group = groups.get(key) ?? { ...outcome, containers: [] };
    if (outcome.container) group.containers.push(outcome.container);
    groups.set(key, group);
  }
  const explained = new Set();
  return [...groups.values()].map((group) => {
    const states = make("div", "states");
    if (group.changed) states.append(chip("changed"));
    if (group.warns) states.append(chip("warns"));
    if (!states.childElementCount) {
      states.append(chip(group.reason === "WouldApply" ? "audit" : "same"));
    }
    const subject = group.remedy ? [`${group.remedy} · `, reasonCode(group)] : [reasonCode(group)];
    const code = make("p", "code", make("b", "", ...subject));
    if (group.policy) {
      code.append(make("span", "muted", "by ", make("span", "mono", group.policy)));
    }
    const names = group.containers.flatMap((name) => [", ", make("code", "", name)]).slice(1);
    if (names.length) names.unshift(names.length === 1 ? "Container " : "Containers ");
    if (names.length) names.push(": ");
    const what = make("div", "what", code, make("p", "", ...names, ...withCode(group.message)));
    if (!isLink(group.explanation) && group.meaning !== group.message && !explained.has(group.reason)) {
      explained.add(group.reason);
      what.append(meaningView(group));
    }
    return make("li", "", states, what);
  });
}

// A link to the explanation of a reason, if the operator has given an address.
function reasonCode({ reason, explanation }) {
  if (!isLink(explanation)) return reason;
  const link = make("a", "", reason);
  link.href = explanation;
  link.target = "_blank";
  link.rel = "noreferrer";
  return link;
}

function isLink(address) { return /^https?:\/\//.test(address ?? ""); }

function meaningView({ reason, meaning }) {
  return make("details", "meaning", make("summary", "", `What ${reason} means`),
    make("p", "", ...withCode(meaning)));
}

function withCode(text) {
  const parts = text.split("`");
  if (parts.length % 2 === 0) return [text];
  return parts.map((part, index) => (index % 2 ? make("code", "", part) : part));
}
