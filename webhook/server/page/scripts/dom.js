"use strict";
// Against script injection: text from a pod or from the server is inserted only as text nodes.
const $ = (id) => document.getElementById(id);
const DATA = JSON.parse($("data").textContent);
// Invisible characters, and those that change the order of a text. The page shows their escapes.
const HIDDEN = /(?![ \n])[\p{C}\p{Z}\p{Default_Ignorable_Code_Point}\u2800]/gu;
const hex = (number, digits) => number.toString(16).padStart(digits, "0");
// The escapes are valid inside the double quotes of YAML, and those of printableJson in JSON.
const printable = (text) => text.replace(HIDDEN, (character) => {
  const code = character.codePointAt(0);
  return code < 0x100 ? `\\x${hex(code, 2)}` : code < 0x10000 ? `\\u${hex(code, 4)}` : `\\U${hex(code, 8)}`;
});
const printableJson = (value) => JSON.stringify(value, null, 2).replace(HIDDEN, (character) =>
  character.split("").map((unit) => `\\u${hex(unit.charCodeAt(0), 4)}`).join(""));
const make = (tag, name, ...children) => {
  const element = document.createElement(tag);
  if (name) element.className = name;
  element.append(...children.map((child) => (typeof child === "string" ? printable(child) : child)));
  return element;
};
const count = (number, noun) => `${number} ${noun}${number === 1 ? "" : "s"}`;
const fillIn = (id) => document.importNode($(id).content, true);
const makeButton = (text, onClick) => {
  const button = make("button", "slight", text);
  button.type = "button";
  button.addEventListener("click", onClick);
  return button;
};

// Replaces a text as typing does, so that Ctrl+Z restores the earlier text.
function typeOver(area, text) {
  area.focus();
  area.select();
  if (!document.execCommand("insertText", false, text)) area.value = text;
  area.setSelectionRange(0, 0);
  area.scrollTop = 0;
}
