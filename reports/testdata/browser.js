// Uses the page as a reader would, and leaves what went wrong as an attribute of the document.
(function () {
  const places = function () {
    return all('#timeline rect').map(function (r) { return Math.round(r.getAttribute('x')) + '+' + Math.round(r.getAttribute('width')) + r.style.display; }).join();
  };

  const before = places();
  check(!$('#tools').hidden && isWhole(), 'the tools are not offered');
  check(document.documentElement.scrollWidth <= innerWidth, 'the page is too wide');

  pointer('pointermove', 0.5);
  check(!$('#readout').hidden && $('#readout').textContent.includes(' s to +'), 'hovering tells nothing');
  check(new Set(all('.cursor').map(function (c) { return c.hidden + c.style.left; })).size === 1, 'the cursors are not linked');
  pointer('pointerdown', 0.5);
  for (const share of [0.52, 0.55, 0.6]) pointer('pointermove', share);
  check(all('.selection').length === 1, 'dragging shows nothing');
  pointer('pointerup', 0.6);
  check(!isWhole() && places() !== before && all('.selection').length === 0, 'dragging does not zoom');
  const ticks = all('#timeline text.own').map(function (t) { return t.textContent; });
  check(ticks.length > 3 && ticks.length < 14 && new Set(ticks).size === ticks.length, 'the ticks of a zoomed view: ' + ticks);
  key('0');
  check(isWhole() && places() === before && all('.own').length === 0, '0 does not show the whole run as before');
  key('+');
  key('+');
  check(!isWhole(), 'plus does not zoom');
  key('ArrowRight');
  check(!$('#readout').hidden, 'the arrow does not move the cursor');
  key('Escape');
  check($('#readout').hidden, 'Escape leaves the readout');
  key('-');
  key('-');
  check(isWhole() && places() === before, 'minus does not come back');
  $('#closer').click();
  check(!isWhole(), 'the button does not zoom');
  $('#whole').click();

  const outages = all('.outage');
  check(outages.length > 1, 'the page shows ' + outages.length + ' outages');
  outages[0].querySelector('summary').click();
  check(outages[0].open && outages[0].querySelectorAll('tbody tr').length > 0, 'an outage does not open');
  for (const o of all('details')) o.open = true;
  check(document.documentElement.scrollWidth <= innerWidth, 'with its details open the page is too wide');
  for (const o of all('details')) o.open = o === outages[0];
  outages[0].querySelector('.locate').click();
  check(!isWhole() && document.activeElement === $('#timeline'), 'an outage is not shown in the time line');
  check($('#readout').textContent.includes('dropped'), 'the cursor does not stand on the outage: ' + $('#readout').textContent);
  const over = $('#readout').getBoundingClientRect(), under = $('#timeline').getBoundingClientRect();
  check(over.top >= under.bottom || over.bottom <= under.top, 'the readout covers the drawing that was asked for');
  check(/from=\d/.test(location.hash) && /^#outage-\d+/.test(location.hash), 'the address does not have the outage and the zoom: ' + location.hash);
  const choose = function (id, value) {
    $(id).value = value;
    $(id).dispatchEvent(new Event('change'));
    return outages.filter(function (o) { return !o.hidden; });
  };
  const linkedView = location.hash;
  $('#whole').click();
  for (const o of outages) o.open = false;
  location.hash = '';
  location.hash = linkedView.slice(1) + '&group=' + outages[0].dataset.group;
  dispatchEvent(new HashChangeEvent('hashchange'));
  location.hash = linkedView.slice(1) + '&class=connect%2'; // cut off
  dispatchEvent(new HashChangeEvent('hashchange'));
  check(!isWhole() && $('#class').value === '', 'a link that is cut off shows nothing: ' + location.hash);
  location.hash = linkedView.slice(1) + '&group=' + outages[0].dataset.group;
  dispatchEvent(new HashChangeEvent('hashchange'));
  check(!isWhole() && $(linkedView.slice(0, linkedView.indexOf('&'))).open && $('#group').value === outages[0].dataset.group, 'a link does not show what it names: ' + location.hash);
  const report = JSON.parse($('#expected').textContent);
  check(all('.outage').length === Math.min(report.outages, 60) && all('.group').length === report.groups, 'the outages are not those of report.json');
  check($('h1').textContent === report.headline, 'the headline is not that of report.json: ' + $('h1').textContent);
  for (const o of outages) {
    const want = report.edges[parseInt(o.id.slice(7), 10) - 1];
    check(o.querySelectorAll('path.edge').length === want && o.querySelectorAll('svg .number').length === want, 'outage ' + o.id + ' draws another number of edges than report.json has');
  }
  const told = $('#snippet').content.textContent;
  for (const word of [report.headline, report.command, report.history]) check(told.includes(word), 'Copy as Markdown lacks ' + word);
  check(!$('#markdown').hidden && all('.scroll,figure').every(function (e) { return e.tabIndex === 0; }), 'a part cannot be reached by keyboard');
  check(all('button,select,a,summary').every(function (e) { return (e.getAttribute('aria-label') || e.textContent || e.closest('label').textContent).trim(); }), 'a control has no name');
  const node = outages[0].dataset.group;
  check(choose('#group', node).every(function (o) { return o.dataset.group === node; }), 'the filter leaves other nodes');
  check(all('.row.dim').length > 0 && all('.row.dim').every(function (r) { return r.dataset.group !== node; }), 'the filter dims the wrong rows');
  choose('#group', '');
  const failure = $('#class').options[1].value;
  const left = choose('#class', failure);
  check(left.length > 0 && left.every(function (o) { return o.dataset.classes.split(' ').includes(failure); }), 'the filter leaves other classes');
  check(choose('#class', '').length === outages.length && $('#filtered').hidden && all('.row.dim').length === 0, 'the filter cannot be undone');
  document.documentElement.setAttribute('data-faults', JSON.stringify(faults));
})();
