package reports

// AttemptBytes is more than an attempt takes on average in attempts.bin: lanes of IPv4, runs of days, thousands of pods.
// Every attempt stands there, so the room of a record is a product that is known before the run.
const AttemptBytes = 64
