// Writes a JSON value as YAML in the style of kubectl.
function yaml(value, indent = "") {
  const deeper = `${indent}  `;
  if (Array.isArray(value) && value.length) {
    return value.map((item) => `${indent}- ${nested(item, deeper).trimStart()}`).join("\n");
  }
  if (value && typeof value === "object" && Object.keys(value).length) {
    return Object.entries(value).map(([key, item]) => {
      const inner = Array.isArray(item) ? nested(item, indent) : nested(item, deeper);
      return `${indent}${scalar(key)}:${inner.startsWith("\n") ? "" : " "}${inner}`;
    }).join("\n");
  }
  return typeof value === "string" ? scalar(value) : JSON.stringify(value);
}

function nested(value, indent) {
  if (value && typeof value === "object") {
    return Object.keys(value).length ? `\n${yaml(value, indent)}` : yaml(value);
  }
  // A block scalar, unless a line would make a parser detect another indentation, or a character
  // has to be escaped.
  if (typeof value !== "string" || !/^\S.*\n/.test(value) || /^ +$/m.test(value)
      || value !== printable(value)) return yaml(value);
  const end = /\n\n$/.test(value) ? "+" : /\n$/.test(value) ? "" : "-";
  const text = value.replace(/\n$/, "").replace(/^(?=.)/gm, indent);
  return `|${end}\n${text}`;
}

function scalar(text) {
  const plain = /^((--?)?[A-Za-z]|[/_$])[\x20-\x7e]*$|^\d+(ms|[smh]|[KMG]i?)$/.test(text)
    && !/: | #|[: ]$|^(y|n|yes|no|on|off|true|false|null)$/i.test(text);
  return plain ? text : printable(JSON.stringify(text));
}
