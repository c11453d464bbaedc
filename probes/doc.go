// Package probes opens connections on a fixed schedule and says what became of each: the open-loop probe engine, its
// lanes, the classification of failures, and the worker program that runs the engine inside a client's namespace.
//
// Open loop means that attempt k of a lane is intended at the lane's start + k/rate, whatever happened to the attempts
// before it, and that its outcome is charged to that instant. A closed loop reports the same one-second outage as 8 or
// as 92,000 failures, depending on how the failure looks; only a fixed rate makes "dropped connections per second" a
// property of the system. Nothing in this package retries, reconnects or swallows an error: every sequence number of a
// lane is recorded exactly once, and what the engine could not try is recorded too, as class probe.
//
// What the classes mean is said in one place, record.Class. This package is not for judging: it computes no outages
// and no verdicts, and it is not a load generator; it stops adding load where its budgets end. It runs on Linux only,
// since the classes rest on Linux's error queue and TCP_INFO.
package probes
