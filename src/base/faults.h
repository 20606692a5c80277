/* Seeded faults: mistakes that a special build can switch on, to see that the tests catch them.
 *
 * KVAD_FAULT(NAME, good, bad) is `(good)` in every ordinary build: `bad` is not even compiled, and
 * scripts/check_faults_absent proves that the objects are the same without the macro. A build with
 * KVAD_FAULTS=ON chooses `bad` while fault NAME is active. Used only in the few small functions
 * that state a rule: which row, which position, first visible key, block key.
 *
 * KVAD_WHILE_FAULTY(good, bad) chooses `bad` while any fault is active. A fault must end in wrong
 * results and not in a crash, which would say nothing of the checks: where one breaks a rule that
 * the code relies on, this keeps its lists whole. */
#ifndef KVAD_BASE_FAULTS_H
#define KVAD_BASE_FAULTS_H

#ifdef KVAD_FAULTS

#include <stdbool.h>
#include <stdint.h>

enum kvad_fault {
    KVAD_FAULT_NONE,
#define X(name, text, area, meaning, report) KVAD_FAULT_##name,
#include "base/faults.def"
#undef X
    KVAD_FAULT_COUNT
};

/** Count that this place was reached; true if the fault is the active one. Any thread. */
bool kvad_fault_hit(enum kvad_fault fault);
/** Make one fault active, or none (KVAD_FAULT_NONE), and set all counters to 0. Not while a step
 * runs. At the start the active fault is the one named by the environment variable KVAD_FAULT. */
void kvad_fault_set(enum kvad_fault fault);
/** How often the place of a fault was reached since kvad_fault_set(). */
uint64_t kvad_fault_reached(enum kvad_fault fault);
/** Whether any fault is active. Any thread. */
bool kvad_fault_is_any(void);
/** Name ("table-swapped"), area ("table"), meaning, and who reported it ("LAYOUT-5 owner/name#22",
 * with a row of docs/known-bugs.md or without); NULL outside the list. */
const char *kvad_fault_name(enum kvad_fault fault);
const char *kvad_fault_area(enum kvad_fault fault);
const char *kvad_fault_meaning(enum kvad_fault fault);
const char *kvad_fault_report(enum kvad_fault fault);
/** The fault of this name, or KVAD_FAULT_NONE. */
enum kvad_fault kvad_fault_from_name(const char *name);

#define KVAD_FAULT(NAME, good, bad)  (kvad_fault_hit(KVAD_FAULT_##NAME) ? (bad) : (good))
#define KVAD_WHILE_FAULTY(good, bad) (kvad_fault_is_any() ? (bad) : (good))

#else

#define KVAD_FAULT(NAME, good, bad)  (good)
#define KVAD_WHILE_FAULTY(good, bad) (good)

#endif

#endif
