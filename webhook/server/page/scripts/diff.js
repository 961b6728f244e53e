function plainView(text) {
  const lines = text.split(/(?<=\n)/).map((line) => ({ text: line, row: () => make("span", "line", line) }));
  return make("pre", "", ...foldWrappers(lines));
}

function diffView(text) {
  if (!text) return make("p", "", "Nothing changes: the pod is admitted unchanged.");
  const lines = text.replace(/\n$/, "").split("\n");
  let [before, after] = [0, 0];
  const number = (value) => String(value).padStart(4);
  return make("pre", "", ...foldWrappers(lines.map((line, index) => {
    const content = `${line}\n`;
    if (index < 2) return { text: content, row: () => make("span", "line head", content) };
    const hunk = /^@@ -(\d+)\S* \+(\d+)/.exec(line);
    if (hunk) {
      [before, after] = [Number(hunk[1]), Number(hunk[2])];
      return { text: content, row: () => make("span", "line hunk", content) };
    }
    const [tag, old, fresh] = { "+": ["ins", 0, 1], "-": ["del", 1, 0] }[line[0]] ?? ["span", 1, 1];
    const numbers = (old ? number(before++) : "    ") + (fresh ? number(after++) : "    ");
    return {
      text: content,
      row: () => {
        const row = make(tag, "line", content);
        row.dataset.n = numbers;
        return row;
      },
    };
  })));
}

// The wrapper script is the same in every container, so it is folded behind a sentence.
const WRAPPER_SENTENCE = "podsettle's wrapper script runs the command and delays its exit";

function foldWrappers(lines) {
  const script = DATA.wrapperScript.split("\n");
  const views = [];
  for (let at = 0; at < lines.length; at += 1) {
    // Only the exact script is folded: other text of a pod must not hide behind the sentence.
    const indent = lines[at].text.indexOf(script[0]);
    const prefix = lines[at].text.slice(0, Math.max(indent, 0));
    const isWrapper = indent >= 0 && /^[+-]? *$/.test(prefix)
      && script.every((line, index) => lines[at + index]?.text === `${prefix}${line}\n`);
    if (!isWrapper) {
      views.push(lines[at].row());
      continue;
    }
    const summary = make("summary", prefix[0] === "+" ? "line added" : "line");
    const sentence = `${WRAPPER_SENTENCE} (${count(script.length, "line")})`;
    // The sentence is no text of the pod, so it is not in the text that a user selects.
    summary.dataset.sentence = sentence;
    summary.setAttribute("aria-label", sentence);
    const rows = lines.slice(at, at + script.length).map((line) => line.row());
    views.push(make("details", "wrapper", summary, ...rows));
    at += script.length - 1;
  }
  return views;
}
