package main

import (
	"fmt"
	"strings"

	"github.com/hitless/hitless/internal/guest"
	"github.com/hitless/hitless/internal/site"
	"github.com/hitless/hitless/record"
	"github.com/hitless/hitless/scenarios"
)

// parameterTables has the keys of all scenarios with their defaults: those of every scenario first.
func parameterTables(string) (string, error) {
	var b strings.Builder
	keys := func(name, text string, rows func(row func(p scenarios.Parameter, note string))) {
		fmt.Fprintf(&b, "## %s\n\n%s\n\n| key | default | meaning |\n|---|---|---|\n", name, text)
		rows(func(p scenarios.Parameter, note string) {
			fmt.Fprintf(&b, "| `%s` | %s | %s%s |\n", p.Key, valueText(p.Default), strings.ReplaceAll(p.Help, "|", `\|`), note)
		})
		b.WriteString("\n")
	}
	keys("Every scenario", "A scenario with a default of its own lists the key again.", func(row func(scenarios.Parameter, string)) {
		for _, p := range scenarios.Common() {
			row(p, siteNote(p))
		}
	})
	keys("Scenarios with lanes", "Every scenario with the key `lanes` has these keys too.", func(row func(scenarios.Parameter, string)) {
		for _, k := range scenarios.LaneKeys() {
			note := siteNote(k.Parameter)
			if len(k.Without) > 0 {
				note += "; not in `" + strings.Join(k.Without, "`, `") + "`"
			}
			row(k.Parameter, note)
		}
	})
	for _, s := range scenarios.All() {
		name := s.Name
		if len(s.Lacks(guest.Offers(record.ControlReplay, "vm"))) > 0 {
			name += " on a live cluster"
		}
		text := strings.ToUpper(s.Summary[:1]) + s.Summary[1:] + "."
		keys(name, text, func(row func(scenarios.Parameter, string)) {
			for _, p := range s.Parameters {
				row(p, siteNote(p))
			}
		})
	}
	return strings.TrimSuffix(b.String(), "\n"), nil
}

// valueText is a default as the cell of a table.
func valueText(text string) string {
	if text == "" {
		return "none"
	}
	return "`" + text + "`"
}

// siteNote says that only a lab has a key.
func siteNote(p scenarios.Parameter) string {
	for _, c := range p.Needs() {
		if !site.LiveOffers.Has(c) {
			return "; only in the lab"
		}
	}
	return ""
}

// capabilityTable has the capabilities and the sites that offer them.
func capabilityTable(string) (string, error) {
	sites := []struct {
		name   string
		offers scenarios.Offers
	}{{"lab with `kube`", guest.Offers(record.ControlKube, "vm")}, {"lab with `replay`", guest.Offers(record.ControlReplay, "vm")}, {"live cluster", site.LiveOffers}}
	var b strings.Builder
	b.WriteString("| capability | meaning |")
	for _, s := range sites {
		b.WriteString(" " + s.name + " |")
	}
	b.WriteString("\n|---|---|" + strings.Repeat("---|", len(sites)) + "\n")
	for _, c := range scenarios.Capabilities() {
		fmt.Fprintf(&b, "| %s | %s |", c, c.Meaning())
		for _, s := range sites {
			b.WriteString(map[bool]string{true: " yes |", false: " |"}[s.offers.Has(c)])
		}
		b.WriteString("\n")
	}
	return b.String(), nil
}
