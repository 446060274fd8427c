// The plugin as a component: what the host calls, and what it does, over the bindings of the world `plugin`.
//
// Included once, by the table of tools that `bulkhead plugin build` makes of tools.json. Plugins do not include it.

#ifndef BULKHEAD_COMPONENT_H
#define BULKHEAD_COMPONENT_H

#include "bulkhead.h"
#include "plugin.h"

// A line of the table. Texts that a tool does not have are NULL; hints are -1 where it says nothing.
typedef struct {
  const char *name, *title, *description, *input_schema, *output_schema;
  int read_only, destructive, idempotent, open_world;
  exports_bulkhead_plugin_tools_task_support_t task_support;
} bulkhead_tool;

static inline plugin_string_t bulkhead_lent(const char *text) {
  plugin_string_t lent;
  plugin_string_set(&lent, text);
  return lent;
}

// A copy that the bindings free when they have passed it on.
static inline plugin_string_t bulkhead_given(const char *text) {
  plugin_string_t given;
  plugin_string_dup(&given, text);
  return given;
}

static inline char *bulkhead_taken(plugin_string_t text) {
  char *taken = bulkhead_allocate(text.len + 1);
  memcpy(taken, text.ptr, text.len);
  taken[text.len] = 0;
  return taken;
}

void bulkhead_progress(double done, double total, const char *message) {
  plugin_string_t text = bulkhead_lent(message == NULL ? "" : message);
  bulkhead_plugin_task_progress(done, &total, message == NULL ? NULL : &text);
}

void bulkhead_sleep(uint64_t milliseconds) { bulkhead_plugin_task_sleep(milliseconds); }

bool bulkhead_is_cancelled(void) {
  return (bulkhead_plugin_task_safe_point() & BULKHEAD_PLUGIN_TASK_SIGNALS_CANCELLED) != 0;
}

char *bulkhead_next_message(void) {
  static plugin_list_string_t messages;
  static size_t next;
  if (next == messages.len) {
    bulkhead_plugin_task_steering(&messages);
    next = 0;
  }
  return next < messages.len ? bulkhead_taken(messages.ptr[next++]) : NULL;
}

bool bulkhead_save(const void *state, size_t bytes) {
  plugin_list_u8_t list = {(uint8_t *)state, bytes};
  plugin_string_t why;
  if (bulkhead_plugin_task_checkpoint(&list, &why)) return true;
  plugin_string_free(&why);
  return false;
}

const void *bulkhead_restored(size_t *bytes) {
  plugin_list_u8_t state;
  *bytes = 0;
  if (!bulkhead_plugin_task_restored(&state)) return NULL;
  *bytes = state.len;
  return state.ptr;
}

void bulkhead_log(const char *text) {
  plugin_string_t json = bulkhead_lent(bulkhead_quote(text));
  bulkhead_plugin_task_log(BULKHEAD_PLUGIN_TASK_LOG_LEVEL_INFO, NULL, &json);
}

bulkhead_json bulkhead_setting(const char *key) {
  plugin_string_t name = bulkhead_lent(key), value;
  bulkhead_json none = {NULL, 0};
  return bulkhead_plugin_config_get(&name, &value) ? bulkhead_parse(bulkhead_taken(value)) : none;
}

bulkhead_json bulkhead_client_extension(const char *name) {
  plugin_string_t key = bulkhead_lent(name), value;
  bulkhead_json none = {NULL, 0};
  return bulkhead_plugin_task_client_extension(&key, &value) ? bulkhead_parse(bulkhead_taken(value)) : none;
}

static inline plugin_option_bool_t bulkhead_hint(int hint) {
  plugin_option_bool_t option = {hint >= 0, hint > 0};
  return option;
}

// Tells the host of the tools in a table.
static inline void bulkhead_list(const bulkhead_tool *table, size_t length, exports_bulkhead_plugin_tools_list_tool_t *listed) {
  listed->len = length;
  listed->ptr = calloc(length == 0 ? 1 : length, sizeof *listed->ptr);
  if (listed->ptr == NULL) abort();
  for (size_t at = 0; at < length; at++) {
    const bulkhead_tool *from = &table[at];
    exports_bulkhead_plugin_tools_tool_t *to = &listed->ptr[at];
    to->name = bulkhead_given(from->name);
    to->title.is_some = from->title != NULL;
    if (from->title != NULL) to->title.val = bulkhead_given(from->title);
    to->description = bulkhead_given(from->description);
    to->input_schema = bulkhead_given(from->input_schema);
    to->output_schema.is_some = from->output_schema != NULL;
    if (from->output_schema != NULL) to->output_schema.val = bulkhead_given(from->output_schema);
    to->annotations.is_some = true;
    to->annotations.val.read_only_hint = bulkhead_hint(from->read_only);
    to->annotations.val.destructive_hint = bulkhead_hint(from->destructive);
    to->annotations.val.idempotent_hint = bulkhead_hint(from->idempotent);
    to->annotations.val.open_world_hint = bulkhead_hint(from->open_world);
    to->task_support = from->task_support;
  }
}

bool exports_bulkhead_plugin_tools_call_tool(plugin_string_t *name, exports_bulkhead_plugin_tools_json_t *arguments,
                                             exports_bulkhead_plugin_tools_tool_output_t *output,
                                             exports_bulkhead_plugin_tools_call_error_t *error) {
  (void)error;
  bulkhead_result result = call(bulkhead_taken(*name), bulkhead_parse(bulkhead_taken(*arguments)));
  memset(output, 0, sizeof *output);
  output->is_error = result.is_error;
  output->structured.is_some = result.structured != NULL;
  if (result.structured != NULL) output->structured.val = bulkhead_given(result.structured);
  if (result.text != NULL) {
    output->content.len = 1;
    output->content.ptr = calloc(1, sizeof *output->content.ptr);
    if (output->content.ptr == NULL) abort();
    output->content.ptr->tag = BULKHEAD_PLUGIN_TYPES_CONTENT_TEXT;
    output->content.ptr->val.text.text = bulkhead_given(result.text);
  }
  return true;
}

#endif
