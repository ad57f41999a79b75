# Files of samples, and how they are read and written.
list(APPEND _headers
  format/folder.h
  format/formats.h
  format/index.h
  format/mds.h
  format/safetensors_header.h
  format/shard.h
  format/write_shards.h)
list(APPEND _sources
  format/documents.cc
  format/folder.cc
  format/format_util.cc
  format/idx.cc
  format/index.cc
  format/index_json.cc
  format/indexed_file.cc
  format/json_lines.cc
  format/lines.cc
  format/litdata.cc
  format/mds.cc
  format/mds_encoding.cc
  format/mds_index.cc
  format/mds_writer.cc
  format/npy.cc
  format/npy_header.cc
  format/npz.cc
  format/packing_log.cc
  format/record_window.cc
  format/registry.cc
  format/rows.cc
  format/safetensors.cc
  format/safetensors_header.cc
  format/samples.cc
  format/shard.cc
  format/shard_check.cc
  format/shard_list.cc
  format/sharded_samples.cc
  format/tar_header.cc
  format/tar_walk.cc
  format/tar_write.cc
  format/tf_example.cc
  format/tfrecord.cc
  format/tfrecord_writer.cc
  format/unpacked.cc
  format/webdataset.cc
  format/webdataset_record.cc
  format/webdataset_stream.cc
  format/webdataset_writer.cc
  format/write_shards.cc
  format/zip.cc)

# Tables of Apache Arrow are read by a plug-in, opened when the first is: nobody else loads libarrow.
if(AIT_HAVE_ARROW)
  list(APPEND _sources format/arrow.cc)
  set(_plugin "${PROJECT_BINARY_DIR}/lib/libait_arrow.so")
  set_source_files_properties(format/arrow.cc PROPERTIES COMPILE_DEFINITIONS
    "AIT_ARROW_PLUGIN_BUILT=\"${_plugin}\";AIT_ARROW_PLUGIN_INSTALLED=\"${CMAKE_INSTALL_FULL_LIBDIR}/libait_arrow.so\"")
  add_library(ait_arrow MODULE format/arrow_plugin.cc)
  target_include_directories(ait_arrow PRIVATE "${PROJECT_SOURCE_DIR}/src" "${PROJECT_SOURCE_DIR}/include")
  target_link_libraries(ait_arrow PRIVATE ait::base third_party::arrow ait_warnings)
  set_target_properties(ait_arrow PROPERTIES
    LIBRARY_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}/lib"
    CXX_VISIBILITY_PRESET hidden
    INSTALL_RPATH_USE_LINK_PATH ON)
  if(AIT_INSTALL)
    install(TARGETS ait_arrow LIBRARY DESTINATION "${CMAKE_INSTALL_LIBDIR}")
  endif()
else()
  list(APPEND _sources format/no_arrow.cc)
endif()
