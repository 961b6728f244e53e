function listExamples() {
  $("examples").querySelector("ul").append(...DATA.examples.map(({ title, about, ...input }, index) => {
    const button = make("button", "", make("b", "", title), make("small", "", about));
    button.type = "button";
    button.autofocus = index === 0;
    button.addEventListener("click", () => {
      $("examples").hidePopover();
      showInput(input);
    });
    return make("li", "", button);
  }));
}
