/* --man: manual pages in roff (man macros), from the same tables as the help. */
#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include "cli/commands.h"
#include "cli/pages.h"

/* A character of running text; a hyphen stays a hyphen. */
static void put_text(char c) {
    switch (c) {
    case '\\': fputs("\\e", stdout); break;
    case '\'': fputs("\\(aq", stdout); break;
    case '"': fputs("\\(dq", stdout); break;
    case '^': fputs("\\(ha", stdout); break;
    case '~': fputs("\\(ti", stdout); break;
    case '`': fputs("\\(ga", stdout); break;
    default: putchar(c);
    }
}

/* Something to be typed: here '-' is the minus of the keyboard. */
static void put_code(const char *text, size_t size) {
    for (size_t i = 0; i < size; i++)
        if (text[i] == '-')
            fputs("\\-", stdout);
        else
            put_text(text[i]);
}

static bool is_word(char c) {
    return isalnum((unsigned char)c) || c == '_' || c == '-';
}

/* Letters of a placeholder such as MODEL at `text`; 0 for other words. */
static size_t placeholder_size(const char *text) {
    size_t size = strspn(text, "ABCDEFGHIJKLMNOPQRSTUVWXYZ");
    return is_word(text[size]) ? 0 : size;
}

/* Letters of an option such as --top-k or -p at `text`; 0 for other words. */
static size_t option_size(const char *text) {
    size_t dashes = strspn(text, "-"), size = dashes;
    if (dashes < 1 || dashes > 2 || !isalpha((unsigned char)text[dashes])) return 0;
    while (is_word(text[size]))
        size++;
    while (text[size - 1] == '-')
        size--;
    return size;
}

static void put_styled(char font, const char *text, size_t size) {
    printf("\\f%c", font);
    put_code(text, size);
    fputs("\\fR", stdout);
}

/* Running text: options become bold, and placeholders italic where `has_placeholders`. */
static void put_prose(const char *text, bool has_placeholders) {
    for (char before = '\n'; *text; before = text[-1]) {
        size_t option = is_word(before) ? 0 : option_size(text);
        size_t placeholder = is_word(before) || !has_placeholders ? 0 : placeholder_size(text);
        if (option) put_styled('B', text, option);
        if (placeholder) put_styled('I', text, placeholder);
        if (!option && !placeholder) {
            if (before == '\n' && *text == '.') fputs("\\&", stdout);
            put_text(*text);
        }
        text += option + placeholder + (!option && !placeholder);
    }
}

static void put_paragraphs(const char *text) {
    for (;;) {
        const char *end = strstr(text, "\n\n");
        char paragraph[2048];
        snprintf(paragraph, sizeof paragraph, "%.*s", end ? (int)(end - text) : (int)strlen(text),
                 text);
        put_prose(paragraph, false);
        putchar('\n');
        if (!end) return;
        puts(".PP");
        text = end + 2;
    }
}

static void put_head(const char *command, const char *summary) {
    char title[64];
    size_t n = (size_t)snprintf(title, sizeof title, "KVAD%s%s", *command ? "-" : "", command);
    for (size_t i = 0; i < n; i++)
        title[i] = (char)toupper((unsigned char)title[i]);
    fputs(".TH ", stdout);
    put_code(title, n);
    printf(" 1 \"\" \"kvad %s\" \"User Commands\"\n.SH NAME\nkvad", kvad_version());
    printf("%s%s \\- ", *command ? "\\-" : "", command);
    put_prose(summary, false);
    fputs("\n.SH SYNOPSIS\n", stdout);
}

static void put_option_head(char letter, const char *name, const char *value) {
    char head[128];
    snprintf(head, sizeof head, "--%s", name);
    puts(".TP");
    if (letter) printf("\\fB\\-%c\\fR, ", letter);
    put_styled('B', head, strlen(head));
    if (*value) putchar(' ');
    put_prose(value, true);
    putchar('\n');
}

static void put_group(const struct cli_group *group) {
    printf(".SS %s\n", group->title);
    for (size_t i = 0; i < group->n_options; i++) {
        const struct cli_option *option = &group->options[i];
        char value[CLI_VALUE_SIZE], help[CLI_HELP_SIZE], variable[CLI_VARIABLE_SIZE];
        cli_option_value_text(option, value);
        cli_option_help_text(option, help);
        put_option_head(option->letter, option->name, value);
        put_prose(help, true);
        cli_option_variable(option, variable);
        if (option->no_variable)
            puts(".");
        else
            printf(".\nVariable: \\fB%s\\fR.\n", variable);
    }
}

static void put_examples(const struct cli_example *examples) {
    puts(".SH EXAMPLES");
    for (; examples->command; examples++) {
        puts(".TP");
        put_styled('B', examples->command, strlen(examples->command));
        putchar('\n');
        put_prose(examples->text, false);
        puts(".");
    }
}

static void put_tail(const struct cli_command *self) {
    puts(".SH EXIT STATUS");
    for (const struct cli_exit_text *e = cli_exit_texts; e->text; e++)
        printf(".TP\n.B %d\n%s.\n", e->code, e->text);
    puts(".SH ENVIRONMENT");
    put_paragraphs(cli_environment_text);
    puts(".SH SEE ALSO");
    if (self) fputs("\\fBkvad\\fR(1)", stdout);
    for (const struct cli_command *const *c = cli_commands; *c; c++)
        if (*c != self)
            printf("%s\\fBkvad\\-%s\\fR(1)", self || c != cli_commands ? ",\n" : "", (*c)->name);
    putchar('\n');
}

static void print_command_page(const struct cli_command *command) {
    put_head(command->name, command->summary);
    printf(".nh\n.B kvad %s\n", command->name);
    put_prose(command->synopsis, true);
    puts("\n.hy\n.SH DESCRIPTION");
    put_paragraphs(command->description);
    puts(".PP");
    put_paragraphs(cli_model_text);
    puts(".SH OPTIONS");
    for (const struct cli_group *const *group = command->groups; *group; group++)
        put_group(*group);
    put_examples(command->examples);
    put_tail(command);
}

static void print_main_page(void) {
    put_head("", "GPT inference whose heart is the KV cache");
    puts(".B kvad\n\\fICOMMAND\\fR \\fIMODEL\\fR [\\fIoptions\\fR]\n.SH DESCRIPTION");
    put_paragraphs(cli_about);
    puts(".PP");
    put_paragraphs(cli_model_text);
    puts(".SH COMMANDS");
    for (const struct cli_command *const *c = cli_commands; *c; c++) {
        printf(".TP\n\\fBkvad\\-%s\\fR(1)\n", (*c)->name);
        put_prose((*c)->summary, false);
        puts(".");
    }
    puts(".SH OPTIONS");
    for (const struct cli_main_option *o = cli_main_options; o->name; o++) {
        put_option_head(o->letter, o->name, o->value ? o->value : "");
        put_prose(o->help, false);
        puts(".");
    }
    put_examples(cli_main_examples);
    put_tail(NULL);
}

void cli_print_man(const struct cli_command *command) {
    if (command)
        print_command_page(command);
    else
        print_main_page();
}
