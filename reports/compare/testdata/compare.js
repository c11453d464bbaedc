// Uses the page of a comparison as a reader would, and leaves what went wrong as an attribute of the document.
(function () {
  check(!$('#tools').hidden && isWhole(), 'the tools are not offered');
  check(document.documentElement.scrollWidth <= innerWidth, 'the page is too wide');
  check(all('.row.run').length === all('[aria-labelledby=runs-title] a[href$="/report.html"]').length, 'the rows are not those of the table');
  pointer('pointermove', 0.18);
  check($('#readout strong').textContent.startsWith('-'), 'before the scenario the cursor says ' + $('#readout strong').textContent);
  pointer('pointermove', 0.45);
  check($('#readout').textContent.includes('attempts') && $('#readout').textContent.includes('seed 1'), 'hovering tells nothing of the runs');
  pointer('pointerdown', 0.4);
  for (const share of [0.42, 0.5]) pointer('pointermove', share);
  pointer('pointerup', 0.5);
  check(!isWhole(), 'dragging does not zoom');
  key('0');
  check(isWhole(), '0 does not show the whole run');
  key('+');
  key('ArrowRight');
  check(!isWhole() && !$('#readout').hidden, 'the keys do not zoom and move the cursor');
  $('#whole').click();
  const subject = $('#group').options[1].value;
  const choose = function (value) {
    $('#group').value = value;
    $('#group').dispatchEvent(new Event('change'));
  };
  choose(subject);
  check(all('.row.dim').length > 0 && all('.row.dim').every(function (r) { return r.dataset.group !== subject; }), 'the filter dims the wrong rows');
  check(all('.row').filter(function (r) { return r.dataset.group === subject; }).every(function (r) { return !r.classList.contains('dim'); }), 'the filter dims what was chosen');
  choose('');
  check(all('.row.dim').length === 0, 'the filter cannot be undone');
  const strips = all('.row.run'), table = all('#lost tbody tr');
  check(strips.every(function (r) { return r.querySelector('path.attempted') && r.querySelector('path.dropped'); }), 'a run that lost connections has no strip of them');
  check(getComputedStyle($('.row.run path.dropped')).fill.includes('#lost'), 'losses are not hatched');
  check(new Set(table.map(function (r) { return r.cells[0].textContent + r.cells[1].textContent; })).size === strips.length, 'the table of losses lacks runs');
  check($('#timeline').getBoundingClientRect().top < $('#difference-title').getBoundingClientRect().top, 'the strips come after the differences');
  document.documentElement.setAttribute('data-faults', JSON.stringify(faults));
})();
