// Package fleet is many probes that run by themselves, such as pods of a cluster, and the one record that is made of them.
//
// A worker (Serve) probes one lane, keeps each attempt in a journal of its own until somebody has it, and answers questions
// over HTTP; it opens no connection but its probes. A collector (Collector) asks each worker again and again for what comes
// next. A question acknowledges all that came before it, so that a lost question, a lost answer, an answer that comes twice
// and a partition cost nothing but time. What it cannot get it states as a gap: every attempt that a worker made is in the
// record once, or within a gap that is told.
//
// A process that starts anew is another worker (its incarnation), and never goes on with the numbers of the one before. Its clock is
// its own; every exchange tells within which bounds it is off (offset), and the record says so.
//
// How a question reaches a worker is the business of a Way.
package fleet
